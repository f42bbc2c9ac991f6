"""`hyper-rl render RUN`: a movie or a picture of a saved agent's episodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import tyro

from hyper_rl.config import LARGEST_SEED, Config, build_parts, check_precision, make_task, require_named_task
from hyper_rl.envs.base import Task
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.maze import PointMaze
from hyper_rl.envs.registry import find_task
from hyper_rl.envs.room import Room
from hyper_rl.errors import UserError, require, require_count, require_probability
from hyper_rl.learners.base import Learner
from hyper_rl.methods.policies import Policies, make_policies
from hyper_rl.own_parts import import_stored
from hyper_rl.report.render.frame_page import caption_shots, status_of
from hyper_rl.report.render.gymnasium_frames import (
    frames_of_gymnasium,
    judged_plays,
    open_rendering,
    training_plays,
)
from hyper_rl.report.render.movie import check_movie, write_movie
from hyper_rl.report.render.paths import judged_walks, training_walks
from hyper_rl.report.render.scene import scene_of, trails_of
from hyper_rl.report.render.sheet import Captions, Frame
from hyper_rl.report.render.stored_learners import read_learners
from hyper_rl.report.render.top_down import animate, episode_name, outcome, still
from hyper_rl.training.agent_file import read_agent
from hyper_rl.training.run_folder import RunFolder

DEFAULT_FPS = 25
SMALLEST, LARGEST = 240, 1920


@dataclass(frozen=True)
class RenderOptions:
    """Show episodes of a saved agent: a GIF or an MP4, or a PNG with all paths."""

    folder: tyro.conf.Positional[Path]
    """Run folder."""
    run: int = 0
    """Which run of the folder."""
    env_module: str | None = None
    """Module to import first; default: the one the run was made with."""
    episodes: int = 3
    """How many episodes."""
    training: bool = False
    """Episodes as in training: with noise, and coloured by who acts."""
    p: float | None = None
    """With --training, for hyper: truncation probability; default: that of the run when it was saved."""
    seed: int = 1_000_000
    """Seed of the episodes; judged ones are those that `hyper-rl evaluate` counts with the same seed."""
    out: Path | None = None
    """File to write, .gif, .mp4 or .png; default RUN/runs/I/judged.gif or training.gif."""
    fps: int | None = None
    """Frames a second; default 25."""
    size: int = 480
    """Width in pixels."""
    overwrite: bool = False
    """Replace the file if it exists."""


@dataclass(frozen=True)
class Players:
    """Who plays the episodes: the judged policy, or all learners of the method."""

    learner: Learner
    policy: Any
    """Of the judged learner, or the states stacked over roles."""
    policies: Policies | None
    """None for judged episodes."""


def run_render(options: RenderOptions) -> int:
    require_count("episodes", options.episodes)
    require(0 <= options.seed <= LARGEST_SEED, "seed", options.seed, f"between 0 and {LARGEST_SEED}")
    fps = DEFAULT_FPS if options.fps is None else options.fps
    require(SMALLEST <= options.size <= LARGEST, "size", options.size, f"between {SMALLEST} and {LARGEST}")
    folder, config = RunFolder.open(options.folder)
    check_precision(config)
    import_stored(config, options.env_module)
    total = len(config.runs)
    require(0 <= options.run < total, "run", options.run, f"between 0 and {total - 1}")
    name = "training.gif" if options.training else "judged.gif"
    out = options.out or folder.path / "runs" / str(options.run) / name
    check_movie(out, fps, overwrite=options.overwrite)
    as_still = out.suffix.lower() == ".png"
    require(not as_still or options.fps is None, "fps", options.fps, "left out for a .png, which does not move")
    players = training_players(folder, config, options) if options.training else judged_players(folder, options)
    captions = captions_for(config, options.run, players)
    task = task_with_map(config)
    if task is not None:
        frames, told = map_frames(task, players, captions, options, as_still=as_still)
    else:
        require(not as_still, "out", str(out), f"a .gif or an .mp4: {config.task} has no map to draw paths on")
        frames, told = own_frames(config, players, captions, options), []
    for line in told:
        print(line)
    count = write_movie(frames, out, fps, overwrite=options.overwrite)
    shown = "" if as_still else f"{count} frames, "
    print(f"wrote {out} ({shown}{out.stat().st_size / 1e6:.2f} MB)")
    return 0


def judged_players(folder: RunFolder, options: RenderOptions) -> Players:
    if options.p is not None:
        raise UserError(f"p: got {options.p}, must be left out without --training: nobody explores when judged")
    folder.read_result()
    agent = read_agent(folder.agent(options.run))
    return Players(agent.learner, agent.policy, None)


def training_players(folder: RunFolder, config: Config, options: RenderOptions) -> Players:
    require(config.method != "lesson", "training", True, "left out for lesson, whose options are not drawn")
    if options.p is not None:
        require(config.method == "hyper", "p", options.p, f"left out for {config.method}, which never repositions")
        require_probability("p", options.p)
    learners, step = read_learners(folder, config, options.run)
    bounded = config.lengths == "bounded"
    scheduled = make_policies(config.method, config.p_start, config.p_end, bounded=bounded)
    as_step = [jnp.asarray(number, jnp.int32) for number in (step, config.schedule_steps)]
    p = options.p if options.p is not None else min(1.0, float(scheduled.probability(*as_step)))
    return Players(build_parts(config).learner, learners, make_policies(config.method, p, p, bounded=bounded))


def captions_for(config: Config, run: int, players: Players) -> Captions:
    beta, seed = config.runs[run]
    curiosity = "" if config.method == "exploit" else f", β = {beta:g}"
    title = f"{config.task}, {config.method}{curiosity}, seed {seed}"
    if players.policies is None:
        return Captions(title, "judged", "judged policy", None)
    roles = players.policies.roles
    if len(roles) == 1:
        return Captions(
            title, "training", "task policy" if "task" in roles else None, "explorer" if "explorer" in roles else None
        )
    if config.method != "hyper":
        return Captions(title, "training", None, "explorer")
    return Captions(title, "training", "repositioning (task policy)", "exploring (explorer)")


def task_with_map(config: Config) -> Task | None:
    """The task that is drawn from above, or None where the environment must draw itself.

    A maze or Room trained as a Gymnasium environment is played in its JAX version, which needs no renderer.
    """
    if config.host is None:
        return build_parts(config).task
    if find_task(config.task).make is None:
        return None
    task = make_task(config.task, {"horizon": config.host["spec"]["horizon"]}, None)
    return task if isinstance(task, Room | PointMaze) else None


def map_frames(
    task: Task, players: Players, captions: Captions, options: RenderOptions, *, as_still: bool
) -> tuple[Iterable[Frame], list[str]]:
    """Frames from above, and a line on each episode."""
    scene = scene_of(task)
    if players.policies is None:
        walks = judged_walks(task, players.learner, players.policy, options.seed, options.episodes)
    else:
        walks = training_walks(task, players.learner, players.policies, players.policy, options.seed, options.episodes)
    told = [f"{episode_name(captions.kind, i, len(walks), walk)}: {outcome(walk)}" for i, walk in enumerate(walks)]
    trails = trails_of(task, walks)
    if as_still:
        return [still(scene, trails, captions, options.size)], told
    return animate(scene, trails, captions, options.size), told


def own_frames(config: Config, players: Players, captions: Captions, options: RenderOptions) -> Iterable[Frame]:
    """Frames that the Gymnasium environment draws itself."""
    host = config.host
    assert host is not None
    if host.get("unwritten"):  # made without them, it would be another environment
        require_named_task(config, "draw it from Python, with the actions of hyper_rl.load(FOLDER).predict")
    env = open_rendering(
        EnvSource(
            host["env_id"],
            kwargs=config.task_options,
            module=host["module"],
            horizon=host["horizon"],
            success=host["success"],
        )
    )
    try:
        if players.policies is None:
            plays = judged_plays(env, players.learner, players.policy, options.seed, options.episodes)
        else:
            plays = training_plays(
                env, players.learner, players.policies, players.policy, options.seed, options.episodes
            )
        for shot in frames_of_gymnasium(env, plays):
            if shot.moment.ended:
                print(status_of(shot, plays, captions))
            yield from caption_shots([shot], plays, captions, options.size)
    finally:
        env.close()
