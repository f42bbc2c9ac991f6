"""Frames of a Gymnasium environment, from its own renderer.

A simulator needs something to draw with. On a machine without a screen MuJoCo can draw through EGL (a graphics card,
or Mesa in software) or OSMesa; where neither is there, an error says what to install.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from hyper_rl.envs.host_env import EnvSource, HostEnv, TaskFailure
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner, LearnerState
from hyper_rl.methods.policies import Policies
from hyper_rl.observations import observation_dtype
from hyper_rl.report.render.choices import (
    draw_length,
    episode_keys,
    judged_choice,
    reset_seed,
    step_keys,
    training_choice,
)
from hyper_rl.report.render.pace import steps_per_frame
from hyper_rl.report.render.sheet import Frame

Act: TypeAlias = Callable[[np.ndarray, int], tuple[np.ndarray, bool]]
"""(observation, step) -> (action in the learner's units, is it the explorer's?)."""


class Play(NamedTuple):
    """One episode to be shown."""

    seed: int
    """The environment is reset with it."""
    act: Act
    length: int | None
    """L of a training episode that repositions."""


class Moment(NamedTuple):
    """Where an episode stands after `step` steps."""

    step: int
    explorer: bool
    """Who acts next, or who acted last."""
    total: float
    """Return so far."""
    success: bool
    ended: bool


class Shot(NamedTuple):
    frame: Frame
    episode: int
    moment: Moment


def open_rendering(source: EnvSource) -> HostEnv:
    """The environment of `source`, able to draw."""
    if source.factory is not None:
        raise UserError(f"environment {source.env_id}: made by a function; only one made by its id can be rendered")
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo's own default asks for a screen
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*render_mode")  # Gymnasium's own words for what is refused below
        try:
            env = replace(source, kwargs={**source.kwargs, "render_mode": "rgb_array"}).make()
        except UserError as error:
            if "render_mode" not in str(error):
                raise
            raise _no_picture(source.env_id, ()) from error  # it takes no render mode at all
    modes = tuple(env.env.metadata.get("render_modes") or ())
    if "rgb_array" not in modes or env.env.render_mode != "rgb_array":
        env.close()
        raise _no_picture(source.env_id, modes)
    _follow(env.env.unwrapped)
    return env


def _no_picture(env_id: str, modes: tuple[str, ...]) -> UserError:
    offered = f"it offers {', '.join(str(mode) for mode in modes)}" if modes else "it offers none"
    return UserError(f"environment {env_id}: cannot be rendered, which takes render mode 'rgb_array'; {offered}")


def _follow(env: Any) -> None:
    """Let the camera follow the body: in Gymnasium a HalfCheetah runs out of the picture of a camera that stands."""
    renderer = getattr(env, "mujoco_renderer", None)
    chosen = getattr(renderer, "default_cam_config", None) or {}
    if renderer is None or renderer.camera_id != -1 or "trackbodyid" in chosen:
        return
    import mujoco

    renderer.camera_id = mujoco.mj_name2id(env.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")  # -1 where there is none


def frames_of_gymnasium(env: HostEnv, plays: Sequence[Play]) -> Iterator[Shot]:
    """The frames of one episode after another, at most `pace.LONGEST_EPISODE` and one of each.

    Each episode is played twice, at first blindly to see how long it is: drawing is by far the slowest part.
    """
    for number, play in enumerate(plays):
        stride = steps_per_frame(sum(1 for _ in _moments(env, play)) - 1)
        for moment in _moments(env, play):
            if moment.step % stride == 0 or moment.ended:
                yield Shot(_draw(env), number, moment)


def _moments(env: HostEnv, play: Play) -> Iterator[Moment]:
    """One episode, while it is being played."""
    moment = Moment(0, False, 0.0, False, False)
    observation = env.reset(play.seed)
    while True:
        action, explorer = play.act(observation, moment.step)
        yield moment._replace(explorer=explorer)
        result = env.step(action)
        observation = result.observation
        moment = Moment(
            moment.step + 1,
            explorer,
            moment.total + result.reward,
            moment.success or result.success,
            result.terminated or result.truncated,
        )
        if moment.ended:
            yield moment
            return


def _draw(env: HostEnv) -> Frame:
    if env.env.render_mode != "rgb_array":
        raise UserError(f"environment {env.env_id}: has no render mode 'rgb_array', so there is nothing to show")
    try:
        drawn: Any = env.env.render()
        frame = np.asarray(drawn)
        if frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3:
            return frame
    except TaskFailure:
        raise
    except Exception as error:  # whatever a graphics library raises
        said = " ".join(str(error).split())[:200]
        raise UserError(
            f"environment {env.env_id}: cannot be drawn on this machine ({type(error).__name__}: {said}); MuJoCo draws "
            "without a screen where EGL or OSMesa is installed: set MUJOCO_GL=egl or MUJOCO_GL=osmesa"
        ) from error
    raise UserError(
        f"environment {env.env_id}: render gave {frame.dtype}{list(frame.shape)}, must be uint8[height, width, 3]"
    )


def judged_plays(env: HostEnv, learner: Learner, policy: Any, seed: int, episodes: int) -> list[Play]:
    """Episodes of the judged policy."""

    @jax.jit
    def answer(observation: Array, t: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, Array]:
        return judged_choice(learner, policy)(observation, t, step_keys(key, t)[0])

    return [Play(int(reset_seed(key)), _on_host(env, answer, key), None) for key in episode_keys(seed, episodes)]


def training_plays(
    env: HostEnv, learner: Learner, policies: Policies, learners: LearnerState, seed: int, episodes: int
) -> list[Play]:
    """Episodes as in training. `learners`: stacked over the roles of the method."""

    @jax.jit
    def answer(observation: Array, t: Int[Array, ""], key: PRNGKeyArray, length: Array) -> tuple[Array, Array]:
        return training_choice(learner, policies, learners, length)(observation, t, step_keys(key, t)[0])

    plays = []
    for key in episode_keys(seed, episodes):
        length = draw_length(policies, key, env.horizon)
        shown = int(length) if len(policies.roles) > 1 else None
        plays.append(Play(int(reset_seed(key)), _on_host(env, answer, key, length), shown))
    return plays


def _on_host(env: HostEnv, answer: Callable[..., tuple[Array, Array]], *given: Any) -> Act:
    dtype = observation_dtype(env.spec.task.observation)

    def act(observation: np.ndarray, t: int) -> tuple[np.ndarray, bool]:
        action, explorer = answer(jnp.asarray(observation, dtype), jnp.asarray(t, jnp.int32), *given)
        return np.asarray(action), bool(explorer)

    return act
