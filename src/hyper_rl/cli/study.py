"""`hyper-rl study`: run a study of the paper, or one's own study file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from hyper_rl.cli.study_computed import draw_if_possible, run_computed_command
from hyper_rl.cli.tables import mean, show
from hyper_rl.errors import UserError, require, require_count
from hyper_rl.studies.computed import computed_studies
from hyper_rl.studies.plan import plan_study
from hyper_rl.studies.ray_runner import Cluster, run_study_on_ray
from hyper_rl.studies.runner import choose, run_study
from hyper_rl.studies.store import StudyResult, read_study
from hyper_rl.studies.study_file import SCALES, StudyFile, builtin_studies, find_study, parse_study
from hyper_rl.training.trainer import Saving


@dataclass(frozen=True)
class StudyOptions:
    """Run a grid of runs into one folder; the same command goes on with a stopped one."""

    study: tyro.conf.Positional[str | None] = None
    """Name of a study (see --list), or the path of a study file."""
    scale: Literal["paper", "quick"] = "paper"
    """paper: the file as it stands; quick: with its [scale.quick], minutes on two cores."""
    out: Path | None = None
    """Study folder to create or to go on with."""
    list_studies: Annotated[bool, tyro.conf.arg(name="list")] = False
    """List the studies that come with the package."""
    plan: bool = False
    """Only check the study and show its groups."""
    only: tuple[str, ...] = ()
    """Compute these groups alone (names as --plan shows them, * for any letters); the others stay for another time."""
    env_workers: int = 0
    """Processes for slow environments; 0: in this one."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    ray: str | None = None
    """Compute the groups on the Ray cluster at this address; `local` starts one here (needs the extra `ray`)."""
    ray_cpus: int = 1
    """CPUs that a group gets there."""
    ray_gpus: int | None = None
    """GPUs that a group gets there; not given: one, where the cluster has any."""
    figures: bool = True
    """Draw the study's figures into its folder (needs the extra `plots`)."""
    json: bool = False
    """Print one JSON object."""


def run_study_command(options: StudyOptions) -> int:
    require(options.checkpoint_seconds > 0, "checkpoint_seconds", options.checkpoint_seconds, "a number > 0")
    require_count("env_workers", options.env_workers, low=0)
    if options.list_studies:
        return _list(options.json)
    if options.study is None:
        raise UserError("study: missing; name one (see: hyper-rl study --list) or give the path of a .toml file")
    if options.study in (computed := computed_studies()):
        require(options.ray is None, "ray", options.ray, f"left out for {options.study}, which trains nothing")
        require(not options.only, "only", options.only, f"left out for {options.study}, which has no groups")
        return run_computed_command(computed[options.study], options.scale, options.out, plan=options.plan,
                                    figures=options.figures, as_json=options.json)  # fmt: skip
    study = find_study(options.study)
    if options.plan:
        return _show_plan(study, options)
    if options.out is None:
        raise UserError(f"out: missing; say where the results go: hyper-rl study {options.study} --out DIR")
    saving = Saving(options.checkpoint_seconds)
    run = run_study
    if options.ray is not None:
        cluster = Cluster(options.ray, options.ray_cpus, options.ray_gpus)
        run = partial(run_study_on_ray, cluster=cluster)
    outcome = run(study, options.scale, options.out, saving=saving, env_workers=options.env_workers, stream=sys.stderr,
                  only=options.only)  # fmt: skip
    result = read_study(options.out)
    figures = draw_if_possible(result, options.out / "figures") if options.figures else []
    rows = table_rows(result)
    if options.json:
        print(
            json.dumps(
                {
                    "study": result.name,
                    "scale": result.scale,
                    "folder": str(options.out),
                    "runs": len(result.runs),
                    "groups_computed": list(outcome.computed),
                    "groups_missing": list(result.missing),
                    "figures": [path.name for path in figures],
                    "rows": rows,
                }
            )
        )
    else:
        _print(result, rows, options.out)
        if result.missing:
            print(f"groups not computed yet: {len(result.missing)}; the same command without --only goes on with them")
        if figures:
            print(f"figures: {options.out / 'figures'} ({len(figures)} files)")
    return 0


def table_rows(result: StudyResult) -> list[dict[str, Any]]:
    """One row per group: what its runs came to, over betas and seeds."""
    rows = []
    for name in dict.fromkeys(run.group for run in result.runs):
        runs = result.select(group=name)
        finals = [{key: None if value != value else value for key, value in run.final.items()} for run in runs]
        rows.append(
            {
                "group": name,
                "runs": len(runs),
                "betas": len({run.beta for run in runs}),
                "success": mean(finals, "success"),
                "return": mean(finals, "return"),
                "behaviour": mean(finals, "behaviour_success"),
            }
        )
    return rows


def _print(result: StudyResult, rows: list[dict[str, Any]], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result.title} (scale {result.scale}, {len(result.runs)} runs)")
    for name in ("group", "runs", "betas", "success", "return", "behaviour"):
        table.add_column(name, justify="left" if name == "group" else "right", overflow="fold")
    for row in rows:
        numbers = (show(row["success"]), show(row["return"], 3), show(row["behaviour"]))
        table.add_row(str(row["group"]), str(row["runs"]), str(row["betas"]), *numbers)
    console = Console()
    console.print(table)
    rows_are_in = "" if result.missing else "; every run has a row in results.csv"
    console.print(f"means over betas and seeds{rows_are_in}", highlight=False)
    console.print(f"study folder: {out}", highlight=False, soft_wrap=True)


def _list(as_json: bool) -> int:
    entries = []
    for name, text in builtin_studies().items():
        study = parse_study(text, name, f"{name}.toml", builtin=True)
        scales = [scale for scale in SCALES if scale == "paper" or scale in study.scales]
        entries.append({"study": name, "title": study.title, "description": study.description, "scales": scales})
    for computed in computed_studies().values():
        about = {"title": computed.title, "description": computed.description, "scales": list(SCALES)}
        entries.append({"study": computed.name, **about})
    entries.sort(key=lambda entry: str(entry["study"]))
    if as_json:
        print(json.dumps({"studies": entries}))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table(title="studies")
    for column in ("study", "scales", "title"):
        table.add_column(column)
    for entry in entries:
        table.add_row(str(entry["study"]), ", ".join(entry["scales"]), str(entry["title"]))
    Console().print(table)
    return 0


def _show_plan(study: StudyFile, options: StudyOptions) -> int:
    planned = plan_study(study, options.scale)
    chosen = choose(planned, options.only)
    needed = {name for group in chosen for name in (group.name, group.within)}
    groups = [group for group in planned if group.name in needed]
    total = sum(group.run_steps for group in groups if group.within is None)
    runs = sum(len(group.config.runs) for group in groups)
    if options.json:
        entries = [
            {
                "name": group.name,
                "labels": dict(group.labels),
                "betas": list(group.config.betas),
                "seeds": list(group.config.seeds),
                "steps": group.config.steps,
                "within": group.within,
            }
            for group in groups
        ]
        print(json.dumps({"study": study.name, "runs": runs, "run_steps": total, "groups": entries}))
        return 0
    for group in groups:
        config = group.config
        within = f", computed with {group.within}" if group.within is not None else ""
        print(f"{group.name}: {len(config.betas)} betas x {len(config.seeds)} seeds x {config.steps:,} steps{within}")
    print(f"{len(groups)} groups, {runs:,} runs, {total:,} run-steps to compute")
    return 0
