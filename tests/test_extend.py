"""What docs/extend.md shows runs as it stands, is as short as it says, learns, and fits the rest of the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyper_rl
from hyper_rl.bonuses.base import Bonus
from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.envs.cartpole import CartPole
from hyper_rl.envs.pendulum import Pendulum
from hyper_rl.envs.room import Room
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.types import Transition

# One worker runs them all, because the page is run once.
pytestmark = pytest.mark.xdist_group("extend")

PAGE = Path(__file__).parent.parent / "docs" / "extend.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
SHORT = 80


@cache
def page() -> dict[str, Any]:
    """Every name the page has defined, its blocks run one after another as a person would."""
    names: dict[str, Any] = {"__name__": "extend"}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"docs/extend.md, block {number + 1}", "exec", dont_inherit=True), names)
    return names


@pytest.fixture(scope="module", autouse=True)
def known_here_only() -> Iterator[None]:
    """What the page registers is no part of the package, which other files ask in the same process."""
    yield
    for registry, own in ((LEARNERS, "linear_q"), (BONUSES, "simhash")):
        registry._classes.pop(own, None)


def numbers(*values: int) -> jax.Array:
    return jnp.asarray(values, jnp.int32)


def moves(places: jax.Array) -> Transition:
    """Steps that lead to the given places."""
    nothing = jnp.zeros(places.shape, float)
    return Transition(jnp.zeros_like(places), jnp.zeros_like(places), nothing, places, jnp.zeros(places.shape, bool))


def test_both_are_as_short_as_the_page_says() -> None:
    learner, bonus = (next(block for block in BLOCKS if f"class {name}(" in block) for name in ("LinearQ", "SimHash"))
    assert max(len(block.splitlines()) for block in (learner, bonus)) < SHORT
    assert max(len(line) for block in BLOCKS for line in block.splitlines()) <= 120


def test_they_are_what_the_loop_expects() -> None:
    assert isinstance(page()["LinearQ"](), Learner) and isinstance(page()["SimHash"](), Bonus)
    with pytest.raises(UserError, match=r"'linear_q' needs discrete actions.*Pendulum.*use 'td3' or 'sac'"):
        page()["LinearQ"]().check(Pendulum().spec)


def test_the_learner_answers_the_probe() -> None:
    judged = page()["judged"]
    assert judged["success"] == 1.0
    assert judged["critic_estimate"] == pytest.approx(0.9, abs=0.01)


def test_the_pair_learns_the_room() -> None:
    agent = page()["agent"]
    assert agent.config.learner == "linear_q" and agent.config.bonus == "simhash"
    assert agent.evaluate(10)["success"] == 1.0


def test_the_bonus_fell_where_the_run_has_been_and_not_elsewhere() -> None:
    agent, bonus = page()["agent"], page()["SimHash"]()
    spec = Room(size=10, subgoal=(6, 6)).spec
    state = jax.tree.map(lambda leaf: leaf[0], agent._loop.state)
    fresh = bonus.init(jax.random.key(0), spec)
    visits = np.asarray(state.totals.visits)
    often = numbers(*np.flatnonzero(visits >= 50))
    assert len(often) >= 10
    paid = np.asarray(bonus.reward(state.bonus, moves(often)))
    assert (paid <= 50**-0.5 + 1e-6).all() and (np.asarray(bonus.reward(fresh, moves(often))) == 1).all()
    # Codes nobody has: those with no visit. They are still worth as much as on the first day.
    assert int((np.asarray(state.bonus.visits) == 0).sum()) > 16_000
    assert float(jax.lax.rsqrt(jnp.maximum(state.bonus.visits, 1).astype(float)).max()) == 1.0


def test_observations_of_either_kind_fit() -> None:
    """The page trains on numbered states; vectors take the other branch of both."""
    learner, bonus, spec, key = page()["LinearQ"](), page()["SimHash"](), CartPole().spec, jax.random.key(1)
    state, counted = learner.init(key, spec, jnp.zeros((), float)), bonus.init(key, spec)
    seen = jax.random.normal(key, (5, 4), dtype=float)
    batch = Transition(seen, numbers(0, 1, 0, 1, 1), jnp.ones((5,), float), seen[::-1], jnp.ones((5,), bool))
    update = jax.jit(learner.update)
    for index in range(1, 200):
        state, info = update(state, batch, batch.reward, key, jnp.asarray(index, jnp.int32))
    assert float(info.loss) < 1e-3
    assert float(learner.estimate(learner.policy(state), seen[0])) == pytest.approx(1.0, abs=0.1)
    counted = bonus.observe(counted, jax.tree.map(lambda leaf: leaf[0], batch))
    counted = bonus.observe(counted, jax.tree.map(lambda leaf: leaf[0], batch))
    near = batch._replace(next_observation=seen[::-1] + 1e-4)
    assert float(bonus.reward(counted, near)[0]) == pytest.approx(2**-0.5)


def test_a_saved_agent_of_ones_own_learner_is_read_again(tmp_path: Path) -> None:
    agent = page()["agent"]
    agent.save(tmp_path / "mine", policy_only=True)
    again = hyper_rl.load(tmp_path / "mine")
    states = np.arange(100)
    np.testing.assert_array_equal(again.predict(states)[0], agent.predict(states)[0])
