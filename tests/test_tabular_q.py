"""Tabular Q-learning: backups by hand, ties, and a whole run of UCB-Q against the same thing in plain Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int
from scipy import stats

from hyper_rl.config import Config, build_program
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.learners.tabular_q import TabularQ, TabularQState, greedy_random_ties
from hyper_rl.training.device_loop import advance_to, init_runs
from hyper_rl.training.program import RunState
from hyper_rl.types import Transition

KEY = jax.random.key(0)
SPEC = TaskSpec("chain", Discrete(3), Discrete(2), 3)


def array(*values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, float)


def number(value: int) -> Int[Array, ""]:
    return jnp.asarray(value, jnp.int32)


def batch_of(*steps: tuple[int, int, int, bool]) -> Transition:
    """(s, a, s', terminated) each; rewards are given apart."""
    s, a, s_next, ends = zip(*steps, strict=True)
    numbers = [jnp.asarray(x, jnp.int32) for x in (s, a, s_next)]
    return Transition(numbers[0], numbers[1], jnp.zeros((len(s),), float), numbers[2], jnp.asarray(ends))


def table() -> Float[Array, "3 2"]:
    return array([1.0, 2.0], [4.0, 3.0], [0.0, 10.0])


def test_one_backup_by_hand() -> None:
    # Q(0, 1) = 2, r = 1, gamma 0.9, max Q(1) = 4: target 1 + 3.6 = 4.6, error 2.6, step 0.5: 2 + 1.3 = 3.3.
    learner = TabularQ(gamma=0.9, step_size=0.5)
    state, info = learner.update(TabularQState(table(), None), batch_of((0, 1, 1, False)), array(1.0), KEY, number(1))
    expected = np.array([[1.0, 3.3], [4.0, 3.0], [0.0, 10.0]])
    np.testing.assert_allclose(np.asarray(state.q), expected, rtol=1e-6)
    assert float(info.loss) == pytest.approx(2.6**2, rel=1e-5) and float(info.actor_loss) == 0.0
    assert state.visits is None


def test_termination_stops_the_bootstrap() -> None:
    # Same step, terminated: target 1, error -1: 2 - 0.5 = 1.5.
    learner = TabularQ(gamma=0.9, step_size=0.5)
    state, _ = learner.update(TabularQState(table(), None), batch_of((0, 1, 1, True)), array(1.0), KEY, number(1))
    assert float(state.q[0, 1]) == pytest.approx(1.5, rel=1e-6)


def test_later_backups_of_one_update_see_the_earlier_ones() -> None:
    # First (0, 1) -> 1 with r = 1: Q(0, 1) becomes 3.3 as above. Then (2, 0) -> 0 with r = 0:
    # target 0.9 * max(1, 3.3) = 2.97, half way from 0: 1.485. In the other order it would be 0.5 * 0.9 * 2 = 0.9.
    learner = TabularQ(gamma=0.9, step_size=0.5, replay=1)
    assert learner.batch_size == 1 and learner.uses_newest
    batch = batch_of((0, 1, 1, False), (2, 0, 0, False))
    state, info = learner.update(TabularQState(table(), None), batch, array(1.0, 0.0), KEY, number(1))
    np.testing.assert_allclose(np.asarray(state.q), [[1.0, 3.3], [4.0, 3.0], [1.485, 10.0]], rtol=1e-6)
    assert float(info.loss) == pytest.approx((2.6**2 + 2.97**2) / 2, rel=1e-5)


def test_visits_rule_by_hand() -> None:
    # H = 4, step (H+1)/(H+t): t = 1 gives 1, t = 2 gives 5/6, t = 3 gives 5/7; another pair starts again at 1.
    # Q(0, 0) from 1, terminated with r = 6, 0, 7: 6; 6 - 5 = 1; 1 + 6 * 5/7 = 37/7. Q(1, 1) with r = 2: 2.
    learner = TabularQ(step_rule="visits", rule_horizon=4.0)
    state = TabularQState(table(), jnp.zeros((3, 2), jnp.int32))
    for reward, expected in ((6.0, 6.0), (0.0, 1.0), (7.0, 37 / 7)):
        state, _ = learner.update(state, batch_of((0, 0, 1, True)), array(reward), KEY, number(1))
        assert float(state.q[0, 0]) == pytest.approx(expected, rel=1e-5)
    state, _ = learner.update(state, batch_of((1, 1, 0, True)), array(2.0), KEY, number(1))
    assert float(state.q[1, 1]) == pytest.approx(2.0, rel=1e-6)
    assert state.visits is not None and np.asarray(state.visits).tolist() == [[3, 0], [0, 1], [0, 0]]


def test_start_values_estimate_and_policy() -> None:
    learner = TabularQ()
    state = learner.init(KEY, SPEC, jnp.asarray(7.5, float))
    np.testing.assert_array_equal(np.asarray(state.q), np.full((3, 2), 7.5))
    assert state.visits is None
    assert TabularQ(step_rule="visits").init(KEY, SPEC, jnp.zeros((), float)).visits is not None
    policy = learner.policy(TabularQState(table(), None))
    assert [float(learner.estimate(policy, number(s))) for s in range(3)] == [2.0, 4.0, 10.0]
    assert [int(learner.judge(policy, number(s), KEY)) for s in range(3)] == [1, 0, 1]


def test_ties_are_broken_evenly_and_only_among_the_best() -> None:
    values = array(3.0, 1.0, 3.0, 3.0, -2.0)
    keys = jax.random.split(KEY, 30_000)
    picks = np.asarray(jax.vmap(greedy_random_ties, in_axes=(None, 0))(values, keys))
    counts = np.bincount(picks, minlength=5)
    assert counts[1] == counts[4] == 0
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-4
    alone = jax.vmap(greedy_random_ties, in_axes=(None, 0))(array(0.0, 1.0, 0.5), keys[:100])
    assert (np.asarray(alone) == 1).all()


def room_config(method: str, **changes: Any) -> Config:
    settings: dict[str, Any] = dict(
        task="Room", method=method, learner="tabular_q", bonus="counts", preset="paper", betas=(0.5,), seeds=(0,),
        steps=300, schedule_steps=300, warmup=0, eval_every=300, eval_episodes=1, p_start=0.3, p_end=0.05,
        lengths="bounded", bonus_scale="none", reward_scale="none", capacity=1,
        task_options={"size": 5, "subgoal": (3, 3), "horizon": 7}, learner_options={"gamma": 0.9},
    )  # fmt: skip
    return Config(**(settings | changes))


def host(state: RunState) -> RunState:
    """A copy that survives the next step, which donates its input."""
    return jax.tree.map(np.array, state)


@pytest.mark.parametrize("method", ["curiosity", "hyper"])
def test_a_run_equals_plain_python(method: str) -> None:
    """Tables, counts and bonus of 300 steps, each step recomputed from the step before in numpy."""
    config = room_config(method)
    program = build_program(config)
    gamma, alpha, beta, goal = 0.9, 0.5, 0.5, 24
    state = init_runs(program)
    before = host(state)
    explorer = program.policies.roles.index("explorer")
    # The explorer's table starts at beta / (1 - gamma) = 5, the task's at 0.
    np.testing.assert_allclose(before.learners.q[0, explorer], 5.0, rtol=1e-6)
    assert method == "curiosity" or (before.learners.q[0, 0] == 0).all()
    ends = 0
    for step in range(300):
        state = advance_to(program, state, step, step + 1, 0)
        after = host(state)
        s, a = np.argwhere(after.bonus[0] - before.bonus[0])[0]
        assert s == before.env[0] and (after.bonus[0] - before.bonus[0]).sum() == 1
        row, column = divmod(int(s), 5)
        row, column = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)][a]
        s_next = min(max(row, 0), 4) * 5 + min(max(column, 0), 4)
        reward = {goal: 1.0, 18: 0.1}.get(s_next, 0.0)
        terminated = s_next in (goal, 18)
        ends += terminated
        bonus = 1 / np.sqrt(after.bonus[0][s, a])
        who = 0 if method == "hyper" and before.episode.step[0] + 1 < before.episode.length[0] else explorer
        assert before.learners.q[0, who][s, a] == before.learners.q[0, who][s].max()
        for role, q in zip(program.policies.roles, before.learners.q[0], strict=True):
            paid = reward + (beta * bonus if role == "explorer" else 0.0)
            target = paid + gamma * (0.0 if terminated else q[s_next].max())
            expected = q.copy()
            expected[s, a] += alpha * (target - q[s, a])
            index = program.policies.roles.index(role)
            np.testing.assert_allclose(after.learners.q[0, index], expected, rtol=1e-5, atol=1e-6)
        over = terminated or before.episode.step[0] + 1 == 7
        assert after.env[0] == (12 if over else s_next)
        assert after.episode.number[0] == before.episode.number[0] + over
        before = after
    # Both goals and the time limit were met on the way.
    assert 0 < ends < before.episode.number[0]


def test_replayed_backups_come_on_top_of_the_newest() -> None:
    """A replay of one transition repeats the newest: two backups of step 0.5 are one of 0.75."""
    config = room_config(
        "exploit", seeds=tuple(range(16)), bonus="none", learner_options={"gamma": 0.9, "replay": 1},
        task_options={"size": 3, "subgoal": (0, 1), "subgoal_reward": 0.4},
    )  # fmt: skip
    program = build_program(config)
    q = np.array(advance_to(program, init_runs(program), 0, 1, 0).learners.q)[:, 0]
    # From the centre (cell 4) one of four moves, up (0), is paid at once; seeds that took it know 0.75 * 0.4 now.
    lucky = q[:, 4, 0] != 0
    assert 0 < lucky.sum() < 16
    np.testing.assert_allclose(q[lucky, 4, 0], 0.3, rtol=1e-6)
    q[:, 4, 0] = 0
    assert (q == 0).all()


def test_continuous_tasks_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="td3"):
        TabularQ().check(TaskSpec("line", Box(1, -1.0, 1.0), Discrete(2), 1))
    TabularQ().check(SPEC)
    bad: dict[str, Any] = {"gamma": 1.0, "step_size": 0.0, "step_rule": "sometimes", "rule_horizon": 0.5, "replay": -1}
    for name, value in bad.items():
        with pytest.raises(UserError, match=f"tabular_q.{name}"):
            TabularQ(**{name: value})
