"""The replay ring: rows, wrapping, and even sampling of what is there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.training.replay import ReplayLayout, human_bytes, join
from hyper_rl.types import Transition

KEY = jax.random.key(0)
CONTINUOUS = TaskSpec("c", Box(3, -1.0, 1.0), Box(2, -1.0, 1.0), 1)
DISCRETE = TaskSpec("d", Discrete(900), Discrete(4), 900)
MIXED = TaskSpec("m", Box(2, -1.0, 1.0), Discrete(5), 1)


def example(spec: TaskSpec, number: int) -> Transition:
    """A transition that carries its number everywhere."""

    def value(space: Box | Discrete, offset: int) -> Array:
        if isinstance(space, Box):
            return jnp.asarray([number + offset + 0.125 * i for i in range(space.size)], float)
        return jnp.asarray((number + offset) % space.n, jnp.int32)

    reward, terminated = jnp.asarray(-float(number), float), jnp.asarray(number % 2 == 1)
    return Transition(value(spec.observation, 0), value(spec.action, 1), reward, value(spec.observation, 2), terminated)


def same(one: Transition, other: Transition) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(("spec", "width"), [(CONTINUOUS, 10), (DISCRETE, 5), (MIXED, 7)])
def test_rows_hold_a_transition_without_loss(spec: TaskSpec, width: int) -> None:
    layout = ReplayLayout.of(spec, 4)
    assert layout.width == width and np.shape(layout.init()) == (4, width)
    for number in (0, 3, 898):
        one = example(spec, number)
        row = layout.pack(one)
        assert isinstance(row, Array) and row.shape == (width,)
        back = layout.unpack(row[None, :])
        assert same(jax.tree.map(lambda leaf: leaf[0], back), one)


def test_large_numbers_of_states_survive_the_row() -> None:
    spec = TaskSpec("large", Discrete(2**24), Discrete(2), 1)
    last = jnp.asarray(2**24 - 1, jnp.int32)
    one = Transition(last, jnp.asarray(1, jnp.int32), jnp.zeros((), float), last - 1, jnp.zeros((), bool))
    layout = ReplayLayout.of(spec, 1)
    row = layout.pack(one)
    assert isinstance(row, Array)
    assert same(jax.tree.map(lambda leaf: leaf[0], layout.unpack(row[None, :])), one)


def filled(layout: ReplayLayout, spec: TaskSpec, count: int) -> Array:
    rows = layout.init()
    add = jax.jit(layout.add)
    for step in range(count):
        rows = add(rows, example(spec, step), jnp.asarray(step, jnp.int32))
    assert isinstance(rows, Array)
    return rows


def test_ring_keeps_the_newest() -> None:
    # Capacity 5, eight transitions: positions 0, 1, 2 hold numbers 5, 6, 7 and positions 3, 4 still 3 and 4.
    layout = ReplayLayout.of(CONTINUOUS, 5)
    rewards = np.asarray(layout.unpack(filled(layout, CONTINUOUS, 8)).reward)
    assert (-rewards).tolist() == [5, 6, 7, 3, 4]
    rewards = np.asarray(layout.unpack(filled(layout, CONTINUOUS, 3)).reward)
    assert (-rewards).tolist() == [0, 1, 2, 0, 0]


@pytest.mark.parametrize(
    ("stored", "numbers"), [(1, [0]), (3, [0, 1, 2]), (5, [0, 1, 2, 3, 4]), (12, [7, 8, 9, 10, 11])]
)
def test_sampling_is_even_over_what_is_stored(stored: int, numbers: list[int]) -> None:
    layout = ReplayLayout.of(DISCRETE, 5)
    rows = filled(layout, DISCRETE, stored)
    sample = jax.jit(layout.sample, static_argnums=2)
    batch = sample(rows, KEY, 50_000, jnp.asarray(stored, jnp.int32))
    drawn = np.asarray(batch.observation)
    assert sorted(set(drawn.tolist())) == numbers
    if len(numbers) > 1:
        assert stats.chisquare(np.bincount(drawn - numbers[0])).pvalue > 1e-4
    # Every drawn row is one whole transition, not a mixture.
    np.testing.assert_array_equal(np.asarray(batch.reward), -drawn.astype(float))
    np.testing.assert_array_equal(np.asarray(batch.action), (drawn + 1) % 4)
    np.testing.assert_array_equal(np.asarray(batch.next_observation), drawn + 2)
    np.testing.assert_array_equal(np.asarray(batch.terminated), drawn % 2 == 1)


def test_room_to_spare_changes_no_draw() -> None:
    small, large = ReplayLayout.of(DISCRETE, 5), ReplayLayout.of(DISCRETE, 20)
    rows, stored = filled(small, DISCRETE, 4), jnp.asarray(4, jnp.int32)
    grown = jnp.pad(rows, ((0, 15), (0, 0)))
    assert same(small.sample(rows, KEY, 100, stored), large.sample(grown, KEY, 100, stored))


def test_newest_stands_first() -> None:
    layout = ReplayLayout.of(MIXED, 4)
    newest, sampled = example(MIXED, 9), layout.unpack(filled(layout, MIXED, 2)[:2])
    alone, joined = join(newest, None), join(newest, sampled)
    assert same(jax.tree.map(lambda leaf: leaf[0], alone), newest) and alone.reward.shape == (1,)
    assert np.asarray(joined.reward).tolist() == [-9.0, 0.0, -1.0]
    assert same(jax.tree.map(lambda leaf: leaf[1:], joined), sampled)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1, "1.0 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (2**52, "4096.0 TiB")]
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text
