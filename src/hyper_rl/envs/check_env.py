"""What a person should know of an environment before training on it, in words to act on.

Each `Finding` is `ok`, a `note` (training works, but there is something to know or to change) or a `problem` (training
is impossible as it is).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from hyper_rl.envs.check_observations import flattened, image_finding, observation_finding
from hyper_rl.envs.env_trial import Trial, find_difference, play
from hyper_rl.envs.finding import Finding
from hyper_rl.envs.gym_make import episode_limit, layers, make_environment, one_line
from hyper_rl.envs.host_env import EnvSource, HostEnv, HostSpec, TaskFailure
from hyper_rl.envs.mujoco_warnings import models_loaded_quietly
from hyper_rl.errors import UserError, require_count

if TYPE_CHECKING:
    from hyper_rl.envs.base import Box, Discrete, TaskSpec

TRIAL_HORIZON = 1000
"""Episode limit while looking at a task that states none."""
SPARSE = 0.1
"""Up to this share of steps with a reward, a task is called sparse."""
REWARD_RANGE = (0.01, 10.0)
"""Root mean square of the rewards other than 0 with which the default learning rates are at home."""
SLOW = 1000.0
"""Steps per second below which worker processes pay."""
LONG = 10_000_000
"""Steps of a training that has more of them than a replay holds."""
HARMLESS = ("observation space minimum", "observation space maximum", "symmetric and normalized", "unwrapped version")
"""Of Gymnasium's warnings: infinite bounds of observations are fine here, actions are rescaled, wrappers are meant."""
PLAIN_WRAPPERS = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")
"""What `gymnasium.make` puts around every environment."""


def check_environment(source: EnvSource, steps: int) -> tuple[list[Finding], HostSpec | None]:
    """All findings, and the task as learners see it where they can.

    An environment that cannot even be made is no finding but a `UserError`.
    """
    require_count("steps", steps)
    env = make_environment(source.env_id, source.kwargs, source.module, source.factory)
    limit, source = _limit(source, episode_limit(env))
    try:
        host = HostEnv(source, env)
    except UserError as error:
        env.close()
        return [Finding("spaces", "problem", str(error)), _gymnasium_checker(source), limit], None
    spec, space = host.spec, env.observation_space
    trials = [play(host, "random", steps, seed=0)]
    if trials[0].failure is None:
        trials.append(play(host, "held", steps, seed=1))
    host.close()
    findings = [
        Finding("spaces", "ok", _spaces(spec.task)),
        *(() if _image(spec.task) else flattened(space)),
        _gymnasium_checker(source),
        limit,
        *_what_was_seen(source, spec.task, trials, steps),
        _memory(spec.task),
    ]
    return findings, spec


def _limit(source: EnvSource, own: int | None) -> tuple[Finding, EnvSource]:
    """The limit, and a source that has one, so that the rest can be looked at in any case."""
    topic = "episode limit"
    if own is None and source.horizon is None:
        says = "none stated; give one with --horizon (horizon=)"
        return Finding(topic, "problem", says), dataclasses.replace(source, horizon=TRIAL_HORIZON)
    if own is None:
        return Finding(
            topic, "ok", f"{source.horizon} steps, as asked for; the task states none", _h(source.horizon)
        ), source
    if source.horizon is None:
        return Finding(topic, "ok", f"{own} steps, the task's own", _h(own)), source
    if source.horizon > own:
        says = f"{source.horizon} steps were asked for, but the task cuts its episodes after {own} itself"
        return Finding(topic, "problem", says, _h(own)), dataclasses.replace(source, horizon=None)
    return Finding(
        topic, "ok", f"{source.horizon} steps, as asked for; the task's own are {own}", _h(source.horizon)
    ), source


def _h(horizon: int | None) -> dict[str, Any]:
    return {"horizon": horizon}


def _spaces(task: TaskSpec) -> str:
    rescaled = "" if _is_choice(task.action) else ", rescaled from [-1, 1]"
    return f"an observation is {_in_words(task.observation)}; an action is {_in_words(task.action)}{rescaled}"


def _in_words(space: Box | Discrete) -> str:
    size = _size(space)
    image = getattr(space, "image", None)
    if image is not None:
        height, width, channels = image
        return f"an image of {height} x {width} pixels and {channels} channel{'s' if channels > 1 else ''}"
    return f"one of {size}" if _is_choice(space) else f"{size} number{'s' if size > 1 else ''}"


def _gymnasium_checker(source: EnvSource) -> Finding:
    """Gymnasium's own checker, with what it prints collected instead."""
    from gymnasium.utils.env_checker import check_env

    env = make_environment(source.env_id, source.kwargs, source.module, source.factory)
    if all(layer is env.unwrapped or type(layer).__name__ in PLAIN_WRAPPERS for layer in layers(env)):
        env = env.unwrapped
    objection = None
    silence = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(silence):
        warnings.simplefilter("always")
        try:
            with contextlib.redirect_stderr(silence), models_loaded_quietly():
                check_env(env, skip_render_check=True)
        except (Exception, SystemExit) as error:
            objection = one_line(error) or type(error).__name__
    with contextlib.suppress(Exception):
        env.close()
    said = list(dict.fromkeys(_plain(str(warning.message)) for warning in caught))
    warned = [text for text in said if not any(part in text for part in HARMLESS)]
    data = {"objection": objection, "warnings": said}
    if objection is not None:
        says = f"Gymnasium's own checker objects: {objection}"
        return Finding("Gymnasium", "note", f"{says} (other libraries may refuse the environment for it)", data)
    if warned:
        return Finding("Gymnasium", "note", f"Gymnasium's own checker warns: {'; '.join(warned)}", data)
    return Finding("Gymnasium", "ok", "Gymnasium's own checker has no objections", data)


def _plain(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).removeprefix("WARN: ").split())


def _what_was_seen(source: EnvSource, task: TaskSpec, trials: list[Trial], steps: int) -> Iterator[Finding]:
    failure = trials[-1].failure
    if failure is not None:
        yield Finding("steps", "problem", f"{failure}; training would stop there, so mend the environment first")
    if not any(trial.steps for trial in trials):
        return
    yield _density(trials)
    yield _reward_scale(trials)
    if _image(task):
        yield image_finding(trials)
    elif not _is_choice(task.observation):
        yield observation_finding(trials)
    yield _success(source, trials)
    yield _endings(trials)
    if failure is None:
        yield _determinism(source, steps)
    yield _speed(trials)


def _density(trials: list[Trial]) -> Finding:
    rewards = np.concatenate([trial.rewards for trial in trials])
    shares = {trial.acting: trial.nonzero for trial in trials}
    data = {"nonzero": shares, "steps": len(rewards)}
    seen = ", ".join(f"{share:.1%} of the steps with {acting} actions" for acting, share in shares.items())
    if not rewards.any():
        says = f"sparse: no reward at all in {len(rewards):,} steps, so all depends on exploration"
        return Finding("reward", "note", says, {**data, "kind": "none seen"})
    if (rewards == rewards[0]).all():
        says = f"the same reward ({rewards[0]:g}) in every step: only how long an episode lasts tells good from bad"
        return Finding("reward", "note", says, {**data, "kind": "constant"})
    kind = "sparse" if max(shares.values()) <= SPARSE else "dense"
    return Finding("reward", "ok", f"{kind}: rewarded are {seen}", {**data, "kind": kind})


def _reward_scale(trials: list[Trial]) -> Finding:
    rewards = np.concatenate([trial.rewards for trial in trials])
    paid = rewards[rewards != 0]
    data = {"low": rewards.min(), "mean": rewards.mean(), "high": rewards.max(), "deviation": rewards.std()}
    data = {name: float(value) for name, value in data.items()}
    if paid.size == 0:
        return Finding("reward scale", "note", "unknown, since no reward was seen", {**data, "rms": None})
    rms = float(np.sqrt(np.mean(np.square(paid))))
    span = f"from {rewards.min():.3g} to {rewards.max():.3g}, typically {rms:.3g}"
    if REWARD_RANGE[0] <= rms <= REWARD_RANGE[1]:
        return Finding("reward scale", "ok", span, {**data, "rms": rms})
    says = f"{span}: bring it near 1 with gymnasium.wrappers.TransformReward, the default learning rates expect that"
    return Finding("reward scale", "note", says, {**data, "rms": rms})


def _success(source: EnvSource, trials: list[Trial]) -> Finding:
    count = sum(trial.successes for trial in trials)
    data = {"successes": count, "rule": source.success, "reported": any(trial.says_success for trial in trials)}
    if source.success == "info" and not data["reported"]:
        says = "not reported in info, so there is no success rate; --success terminated or --success reward may fit"
        return Finding("success", "note", says, data)
    rule = {"info": "info reports it", "terminated": "ending by itself counts", "reward": "reward > 0 counts"}
    return Finding("success", "ok", f"{rule[source.success]}; seen {count} times", data)


def _endings(trials: list[Trial]) -> Finding:
    ended, cut = sum(trial.terminated for trial in trials), sum(trial.truncated for trial in trials)
    lengths = [length for trial in trials for length in trial.lengths]
    data = {"terminated": ended, "truncated": cut, "mean_length": float(np.mean(lengths)) if lengths else None}
    if not lengths:
        steps = sum(trial.steps for trial in trials)
        return Finding(
            "endings", "ok", f"no episode came to an end in {steps:,} steps; look again with more --steps", data
        )
    mean = f"{np.mean(lengths):.0f} steps on average"
    if ended == 0:
        return Finding("endings", "ok", f"no episode ended by itself, all {cut} were cut at the limit ({mean})", data)
    return Finding("endings", "ok", f"{ended} of {ended + cut} episodes ended by themselves ({mean})", data)


def _determinism(source: EnvSource, steps: int) -> Finding:
    try:
        found = find_difference(source, steps)
    except TaskFailure as failure:
        return Finding("deterministic", "problem", str(failure))
    if found is None:
        says = "the same seed and actions led to the same steps, in a second environment and after other episodes"
        return Finding("deterministic", "ok", f"yes: {says}", {"deterministic": True})
    says = (
        f"no: with the same seed and actions {found.what}, in {found.again} (seed {found.seed}, step {found.step}); "
        "training works, but a run that stops cannot be resumed exactly"
    )
    return Finding("deterministic", "note", says, {"deterministic": False, **asdict(found)})


def _speed(trials: list[Trial]) -> Finding:
    seconds, resets = sum(trial.step_seconds for trial in trials), sum(trial.resets for trial in trials)
    rate = sum(trial.steps for trial in trials) / max(seconds, 1e-9)
    reset = sum(trial.reset_seconds for trial in trials) / max(resets, 1)
    data = {"steps_per_second": rate, "reset_seconds": reset}
    says = f"{rate:,.0f} steps/s, {1000 * reset:.3g} ms for a reset"
    if rate < SLOW:
        return Finding("speed", "note", f"{says}: for several runs side by side use --env-workers", data)
    return Finding("speed", "ok", says, data)


def _memory(task: TaskSpec) -> Finding:
    """Of as large a replay as a long training has when nobody says."""
    from hyper_rl.config import suggest_capacity
    from hyper_rl.training.memory import HEADROOM, at_most, available
    from hyper_rl.training.replay import ReplayLayout

    capacity = suggest_capacity(LONG, task.observation)
    row = ReplayLayout.of(task, capacity).row_bytes
    total, free = row * capacity, available()
    says = f"{total / 2**20:,.0f} MiB for a replay of {capacity:,} transitions, for each run"
    data = {"replay_bytes": total, "free_bytes": free}
    if free is not None and at_most(total, total) > HEADROOM * free:
        fits = int(HEADROOM * free / at_most(row, row))
        says = f"{says}, and {free / 2**20:,.0f} MiB is free: at most --capacity {fits} fits, or fewer --steps"
        return Finding("memory", "problem", says, data)
    if total > 4 * 2**30:
        return Finding("memory", "note", f"{says}; --capacity lowers it", data)
    return Finding("memory", "ok", says, data)


def _is_choice(space: Box | Discrete) -> bool:
    return hasattr(space, "n")


def _size(space: Any) -> int:
    return int(space.n if _is_choice(space) else space.size)


def _image(task: TaskSpec) -> tuple[int, int, int] | None:
    return getattr(task.observation, "image", None)
