"""Grids of runs as TOML files, results on disk, and one study per figure and table of the paper."""
