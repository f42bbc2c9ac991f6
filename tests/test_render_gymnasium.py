"""Frames of Gymnasium environments: the right episodes, in a bounded number, and words where nothing can be drawn."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.envs.host_env import EnvSource, HostEnv
from hyper_rl.errors import UserError
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.policies import make_policies
from hyper_rl.report.render.frame_page import caption_shots, status_of
from hyper_rl.report.render.gymnasium_frames import (
    Play,
    frames_of_gymnasium,
    judged_plays,
    open_rendering,
    training_plays,
)
from hyper_rl.report.render.pace import LONGEST_EPISODE
from hyper_rl.report.render.sheet import EXPLORER, TASK_POLICY, Captions
from hyper_rl.threefry import make_key
from hyper_rl.training.host_evaluation import HostJudge
from hyper_rl.types import stack_runs


class Drifting(gymnasium.Env[np.ndarray, np.ndarray]):
    """Walk along a line from a random place; the frame's first pixel tells the step."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float64)

    def __init__(self, last: int = 6, render_mode: str | None = None, broken: bool = False) -> None:
        self.last, self.render_mode, self.broken = last, render_mode, broken
        self.step_number, self.place = 0, 0.0

    def _observe(self) -> np.ndarray:
        return np.array([self.place, self.step_number / self.last])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.step_number, self.place = 0, float(self.np_random.normal())
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.step_number += 1
        self.place += float(action[0])
        ended = self.step_number == self.last
        return self._observe(), self.place, ended, False, {"success": ended}

    def render(self) -> Any:
        if self.broken:
            raise ImportError("no library called\n libEGL.so")
        return np.full((30, 40, 3), self.step_number % 256, np.uint8)


def make(**options: Any) -> HostEnv:
    return EnvSource("Drifting", factory=lambda: Drifting(**options), horizon=5000).make()


@pytest.fixture(scope="module")
def agent() -> tuple[Any, Any]:
    learner = TD3(widths=(8,))
    return learner, learner.init(jax.random.key(1), make().spec.task, jnp.zeros((), float))


def test_judged_frames_are_those_of_the_episodes_that_evaluate_counts(agent: tuple[Any, Any]) -> None:
    learner, state = agent
    policy, env = learner.policy(state), make(render_mode="rgb_array")
    shots = list(frames_of_gymnasium(env, judged_plays(env, learner, policy, 7, 3)))
    assert [shot.moment.step for shot in shots] == [*range(7)] * 3
    assert [int(shot.frame[0, 0, 0]) for shot in shots] == [shot.moment.step for shot in shots]
    ends = [shot for shot in shots if shot.moment.ended]
    assert [(shot.episode, shot.moment.step, shot.moment.success) for shot in ends] == [
        (0, 6, True),
        (1, 6, True),
        (2, 6, True),
    ]
    source = EnvSource("Drifting", factory=Drifting, horizon=5000)
    judge = HostJudge(source, env.spec.task, 5000)
    judged = judge.judge(stack_runs([learner]), stack_runs([policy]), jnp.stack([make_key(7)]), 3)
    judge.close()
    assert np.mean([shot.moment.total for shot in ends]) == pytest.approx(float(judged.total[0]), rel=1e-5)


def test_training_frames_tell_who_acts(agent: tuple[Any, Any]) -> None:
    learner, state = agent
    env, both = make(render_mode="rgb_array"), jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    plays = training_plays(env, learner, make_policies("hyper", 0.4, 0.4), both, 7, 4)
    assert len({play.length for play in plays}) > 1
    captions = Captions("Drifting", "training", "repositioning (task policy)", "exploring (explorer)")
    for shot in frames_of_gymnasium(env, plays):
        length = plays[shot.episode].length
        assert length is not None
        assert shot.moment.explorer == (min(shot.moment.step, 5) >= length - 1)
        page = next(caption_shots([shot], plays, captions, 240))
        assert page.shape[1] == 240 and page.shape[0] % 2 == 0
        seen = {colour: (page == np.array(colour, np.uint8)).all(axis=2).any() for colour in (EXPLORER, TASK_POLICY)}
        assert seen == {EXPLORER: shot.moment.explorer, TASK_POLICY: not shot.moment.explorer}
        assert status_of(shot, plays, captions).startswith(f"training episode {shot.episode + 1} of 4 (L = {length})")


def test_a_long_episode_is_shown_in_even_strides_up_to_its_end() -> None:
    env = make(render_mode="rgb_array", last=2000)
    shots = list(frames_of_gymnasium(env, [Play(0, lambda observation, t: (np.zeros(1), False), None)]))
    steps = [shot.moment.step for shot in shots]
    assert steps == [*range(0, 2000, 14), 2000] and shots[-1].moment.ended
    assert len(steps) <= LONGEST_EPISODE + 1


def test_where_nothing_can_be_drawn_an_error_says_why() -> None:
    still = Play(0, lambda observation, t: (np.zeros(1), False), None)
    with pytest.raises(
        UserError, match=r"Drifting: cannot be drawn .*ImportError: no library called libEGL\.so.*MUJOCO_GL"
    ):
        list(frames_of_gymnasium(make(render_mode="rgb_array", broken=True), [still]))
    with pytest.raises(UserError, match="Drifting: has no render mode 'rgb_array'"):
        list(frames_of_gymnasium(make(), [still]))


def test_an_environment_is_opened_by_its_id_with_its_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "kept")
    gymnasium.register("test_render/Drifting-v0", lambda **options: Drifting(**options), max_episode_steps=100)
    try:
        env = open_rendering(EnvSource("test_render/Drifting-v0", kwargs={"last": 3}))
        assert env.env.render_mode == "rgb_array"
        plays = [Play(0, lambda observation, t: (np.zeros(1), False), None)]
        assert len(list(frames_of_gymnasium(env, plays))) == 4
    finally:
        del gymnasium.registry["test_render/Drifting-v0"]
    with pytest.raises(UserError, match=r"^environment toy/Walk-v0: cannot be rendered, .* it offers none$"):
        open_rendering(EnvSource("toy/Walk-v0", module="toy_envs"))
    with pytest.raises(UserError, match="made by a function"):
        open_rendering(EnvSource("Drifting", factory=Drifting))
