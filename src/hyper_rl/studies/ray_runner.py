"""A study on a Ray cluster: every group is a task of it, on a folder that all machines share.

Ray says which machine computes what, and starts a task again whose worker has died. Everything else is as with several
processes on one folder: the group's lock keeps two from computing it, and its checkpoint is where the next one goes
on. So the results are the same bytes, whatever dies in between.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import jax

from hyper_rl.errors import UserError, missing_extra, require, require_count
from hyper_rl.studies.plan import Group, plan_study
from hyper_rl.studies.ray_worker import Answer, Job, begin_study, compute_group
from hyper_rl.studies.runner import Outcome, choose, interrupted, only_words, settle, with_outer
from hyper_rl.studies.study_file import StudyFile
from hyper_rl.studies.study_folder import StudyFolder, contained_in, is_done, open_study, waits_for
from hyper_rl.studies.study_progress import StudyProgress
from hyper_rl.training.progress import show_progress
from hyper_rl.training.stopping import watch_for_stop
from hyper_rl.training.trainer import Saving

LOCAL = "local"
"""The address that starts a cluster on this machine, for as long as the study runs."""
RETRIES = 10
"""Workers of one group that may die before the study gives up; the same command then goes on with it."""
CONNECT_SECONDS, LOOK_EVERY_SECONDS = 10.0, 1.0
ASK_AGAIN_SECONDS = 5.0
"""Before a group that some other process computes is asked for again."""
SAVE_SECONDS = 120.0
"""How long tasks that were told to stop may take to save."""


@dataclass(frozen=True)
class Cluster:
    """Where groups are computed, and what each of them gets there."""

    address: str
    """As `ray.init` takes it; 'local' starts a cluster here."""
    cpus: int = 1
    gpus: int | None = None
    """None: one, where the cluster has any."""

    def check(self) -> None:
        require_count("ray_cpus", self.cpus)
        if self.gpus is not None:
            require_count("ray_gpus", self.gpus, low=0)

    @property
    def options(self) -> list[str]:
        """What to type to have it again."""
        words = ["--ray", self.address]
        words += ["--ray-cpus", str(self.cpus)] if self.cpus != 1 else []
        return words + (["--ray-gpus", str(self.gpus)] if self.gpus is not None else [])


def run_study_on_ray(
    study: StudyFile,
    scale: str,
    out: Path,
    *,
    cluster: Cluster,
    saving: Saving = Saving(),
    env_workers: int = 0,
    stream: TextIO | None = None,
    only: Sequence[str] = (),
) -> Outcome:
    """`run_study`, with the groups on the workers of a cluster. This process computes nothing and needs no device."""
    cluster.check()
    ray, shown = _import_ray(), stream or sys.stderr
    jax.config.update("jax_platforms", "cpu")  # whatever accelerator is here belongs to the workers
    folder = StudyFolder(out.resolve())
    with ExitStack() as stack:
        # Before anything is computed here: starting a cluster forks, which JAX does not take once it has threads.
        resources = stack.enter_context(_connected(ray, cluster, shown))
        begun = folder.json.is_file()
        if not begun:
            choose(planned := plan_study(study, scale), only)  # refused before the folder is there
            # All of them, whatever is computed first: how they are divided is settled for good.
            beside = _groups_beside(ray, resources, sum(group.within is None for group in planned))
            with _hushed():
                _begin_on_worker(ray, resources, study, scale, folder, beside)
        _, groups, _ = open_study(study, scale, folder.path)
        chosen = with_outer(folder, choose(groups, only), groups)
        waiting = [group for group in chosen if not is_done(folder, group)]
        progress = StudyProgress(study.name, folder, chosen, show_progress, stack, shown)
        if begun and waiting:
            progress.say(f"{out}: {len(chosen) - len(waiting)} of {len(chosen)} groups are done already")
        progress.look("")  # a bar passes on what is printed, unless it is there before the printing is hushed
        stack.enter_context(_hushed())
        jobs = [
            Job(folder.path, group, saving, env_workers, _wants_x64(), contained_in(group, groups)) for group in waiting
        ]
        tasks = Tasks(ray, resources, progress, groups)
        try:
            with watch_for_stop() as asked_to_stop:
                for job in jobs:
                    tasks.submit(job)
                while tasks.running or tasks.later:
                    tasks.collect()
                    progress.look(f", {len(tasks.running)} of {len(chosen)} groups with Ray")
                    if asked_to_stop():
                        tasks.stop()
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise interrupted(study, scale, folder, out, chosen, [*cluster.options, *only_words(only)]) from None
        except UserError:
            tasks.stop()
            raise
    settle(folder, groups, tasks.computed)
    return Outcome(folder, groups, tuple(tasks.computed))


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a study tells nobody that it is running
    try:
        import ray
    except ImportError:
        raise missing_extra("ray: a cluster", "ray") from None
    return ray


@contextmanager
def _connected(ray: Any, cluster: Cluster, stream: TextIO) -> Iterator[dict[str, Any]]:
    """The resources of one task, for as long as the cluster is there."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    here = cluster.address == LOCAL
    _require_reachable(cluster.address)
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=cluster.address, **quiet, **({"include_dashboard": False} if here else {}))
    except ImportError:  # ray://
        raise missing_extra(f"ray: {cluster.address}", "ray") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"ray: no cluster at {cluster.address!r} ({_first_line(error)})") from None
    try:
        most = {name: max(_on_nodes(ray, name), default=0) for name in ("CPU", "GPU")}
        gpus = cluster.gpus if cluster.gpus is not None else int(most["GPU"] > 0)
        for name, asked, most_here in (("cpus", cluster.cpus, most["CPU"]), ("gpus", gpus, most["GPU"])):
            if asked > most_here and here:
                raise UserError(f"ray_{name}: got {asked}, and this machine has {most_here:g}")
            if asked > most_here:  # a cluster may grow
                print(f"ray: waiting for a machine with {asked} {name}: the largest has {most_here:g}", file=stream)
        yield {"num_cpus": cluster.cpus, "num_gpus": gpus}
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    """Ray itself tries for a quarter of an hour where nobody answers."""
    found = re.fullmatch(r"(?:ray://)?(.+):(\d+)/?", address)
    if found is None:
        require(address in (LOCAL, "auto"), "ray", address, "'local', 'auto', HOST:PORT or ray://HOST:PORT")
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"ray: no cluster at {address!r} ({_first_line(error)})") from None


@contextmanager
def _hushed() -> Iterator[None]:
    """Ray prints every death of a worker on standard output, which is for the results."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def _on_nodes(ray: Any, resource: str) -> list[float]:
    return [node["Resources"].get(resource, 0) for node in ray.nodes() if node["Alive"]]


def _groups_beside(ray: Any, resources: dict[str, Any], groups: int) -> int:
    """Groups that may share the memory of one machine; GPUs have their own."""
    if resources["num_gpus"]:
        return 1
    return max(1, min(groups, int(max(_on_nodes(ray, "CPU"), default=1) // resources["num_cpus"])))


def _begin_on_worker(
    ray: Any, resources: dict[str, Any], study: StudyFile, scale: str, folder: StudyFolder, beside: int
) -> None:
    """A worker decides the division: it has the devices and the memory that the groups will have."""
    task = ray.remote(max_retries=RETRIES, **resources)(begin_study)
    refused = _result(ray, task.remote(study, scale, folder.path, beside, _wants_x64()), "the study")
    if refused is not None:
        raise UserError(refused)
    if not folder.json.is_file():
        raise UserError(f"out: {folder.path} is not the same folder on the workers; choose one that all machines share")


@dataclass
class Tasks:
    """Groups on their way through the cluster."""

    ray: Any
    resources: dict[str, Any]
    progress: StudyProgress
    groups: Sequence[Group]
    running: dict[Any, Job] = field(default_factory=dict)
    later: list[tuple[float, Job]] = field(default_factory=list)
    """Held by other processes or computed with another group, and when to ask again."""
    computed: list[str] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    def submit(self, job: Job) -> None:
        """Retried by Ray when its worker dies, never when it has come to an answer."""
        if waits_for(StudyFolder(job.out), job.group, self.groups) is not None:
            self.later.append((time.monotonic() + LOOK_EVERY_SECONDS, job))
            return
        task = self.ray.remote(max_retries=RETRIES, retry_exceptions=False, **self.resources)(compute_group)
        self.running[task.remote(job)] = job

    def collect(self) -> None:
        """Wait a moment for answers, and act on them."""
        if self.running:
            ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=LOOK_EVERY_SECONDS)
        else:
            time.sleep(LOOK_EVERY_SECONDS)
            ready = []
        for reference in ready:
            job = self.running.pop(reference)
            self._act(job, _result(self.ray, reference, f"group {job.group.name}"))
        now = time.monotonic()
        for when, job in [entry for entry in self.later if entry[0] <= now]:
            self.later.remove((when, job))
            self.submit(job)

    def stop(self) -> None:
        """Ask every task to save and end, and wait until they have."""
        references = list(self.running)
        for reference in references:
            self.ray.cancel(reference)
        if references:
            self.ray.wait(references, num_returns=len(references), timeout=SAVE_SECONDS)
        self.running.clear()

    def _act(self, job: Job, answer: Answer) -> None:
        group, folder = job.group, StudyFolder(job.out)
        if answer.state == "refused":
            raise UserError(f"group {group.name}: {answer.said[-1]}")
        if answer.state == "held":
            if group.name not in self._told:
                self._told.add(group.name)
                self.progress.say(f"waiting for it: {answer.said[-1]} computes it", group)
            self.later.append((time.monotonic() + ASK_AGAIN_SECONDS, job))
            return
        if answer.state == "stopped":
            raise UserError(f"ray: the worker of group {group.name} was told to stop; the same command goes on with it")
        for line in answer.said:
            self.progress.say(line, group)
        if not is_done(folder, group):
            raise UserError(f"out: {job.out} is not the same folder on the workers; choose one that all machines share")
        if answer.state == "computed":
            self.computed.append(group.name)


def _result(ray: Any, reference: Any, what: str) -> Any:
    try:
        return ray.get(reference)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError) as error:
        raise UserError(
            f"ray: the worker of {what} died {RETRIES + 1} times ({type(error).__name__}); "
            "the same command goes on from the last checkpoint"
        ) from None
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        raise UserError(f"ray: {what} failed on its worker ({type(cause).__name__}: {_first_line(cause)})") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _wants_x64() -> bool:
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
