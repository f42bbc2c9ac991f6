"""Curiosity-driven exploration that needs no tuning of the curiosity coefficient."""

__version__ = "0.1.0"
