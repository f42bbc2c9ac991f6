"""Learning from images: bytes all the way from the environment to the convolutions."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jaxtyping import Array

import toy_envs
from hyper_rl import Exploit
from hyper_rl.bonuses.rnd import RND, learn_rows, standardised
from hyper_rl.cli.check_env import run_check_env
from hyper_rl.cli.main import main
from hyper_rl.config import build_program, suggest_capacity
from hyper_rl.convolutions import (
    NATURE,
    Convolutions,
    ImageNetwork,
    convolved_size,
    layers_for,
    make_convolutions,
    make_network,
)
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.envs.check_env import check_environment
from hyper_rl.envs.finding import Finding
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.host_task import HostTask, spec_to_json, task_from_json
from hyper_rl.envs.image_reader import axes_of
from hyper_rl.envs.observation_reader import Unfit, VectorReader, read_observations
from hyper_rl.errors import UserError
from hyper_rl.learners.dqn import DQN
from hyper_rl.networks import make_mlp
from hyper_rl.presets import PRESETS
from hyper_rl.settings import Settings, choose_task, make_parts
from hyper_rl.training.loop import carry_over, pack
from hyper_rl.training.memory import estimate
from hyper_rl.training.program import RunState
from hyper_rl.training.progress import Silent, show_progress
from hyper_rl.training.replay import ImageRows, ReplayLayout
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.trainer import train
from hyper_rl.types import Transition
from kill_and_resume import differing
from toy_envs import Pixels, Still, image

SPEC = TaskSpec("pictures", Box(8 * 9 * 2, 0.0, 255.0, (8, 9, 2)), Discrete(3), 1)
QUICK = DQN(lr=1e-3, gamma=0.9, tau=0.02, batch_size=32, widths=(64,), epsilon_updates=1_500)
COMMAND = "toy/Pixels-v0 --env-module toy_envs --eval-every 60 --eval-episodes 2 --warmup 30 --dqn.batch-size 8"


# Reading


@pytest.mark.parametrize(
    ("shape", "order", "seen"),
    [
        ((9, 8), "hw", (9, 8, 1)),
        ((9, 8, 3), "hwc", (9, 8, 3)),
        ((8, 9, 8), "hwc", (8, 9, 8)),
        ((4, 9, 8), "chw", (9, 8, 4)),
        ((9, 10, 1), "hwc", (9, 10, 1)),
        ((2, 9, 8, 3), "khwc", (9, 8, 6)),
        ((2, 3, 9, 8), "kchw", (9, 8, 6)),
    ],
)
def test_every_layout_becomes_rows_of_pixels_with_their_channels(
    shape: tuple[int, ...], order: str, seen: tuple[int, int, int]
) -> None:
    reader = read_observations(image(shape))
    raw = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    before = raw.copy()
    read = reader.read(raw)
    assert (reader.image, reader.size, reader.one_of) == (seen, raw.size, False)
    assert read.dtype == np.uint8 and read.shape == (raw.size,)
    sizes = dict(zip(order, shape, strict=True))
    index = 0
    for h in range(sizes["h"]):
        for w in range(sizes["w"]):
            for k in range(sizes.get("k", 1)):
                for c in range(sizes.get("c", 1)):
                    place = {"h": h, "w": w, "k": k, "c": c}
                    assert read[index] == raw[tuple(place[axis] for axis in order)]
                    index += 1
    raw[...] = 7
    assert not np.array_equal(read, reader.read(raw)) and np.array_equal(read, reader.read(before)), "a fresh vector"
    rows = reader.split(np.stack([before, raw]))
    assert rows is not None and np.array_equal(reader.read(rows[0]), read)
    assert reader.split(before) is None


def test_what_is_no_picture_and_what_is_not_as_declared() -> None:
    small = read_observations(image((7, 7, 3)))
    assert isinstance(small, VectorReader) and small.read(np.full((7, 7, 3), 3, np.uint8)).dtype == np.float64
    assert isinstance(read_observations(spaces.Box(0, 10, (9, 9), np.uint8)), VectorReader), "symbols from 0 to 10"
    assert axes_of((1, 2, 3, 4, 5)) is None and axes_of((84, 84, 3, 4)) is not None
    with pytest.raises(UserError, match=r"\(84, 84, 3, 4\), must have its frames first, such as \(4, 84, 84, 3\)"):
        read_observations(image((84, 84, 3, 4)))
    reader = read_observations(image((8, 8, 3)))
    with pytest.raises(Unfit, match=r"shape \(8, 8\), declared \(8, 8, 3\)"):
        reader.read(np.zeros((8, 8), np.uint8))
    with pytest.raises(Unfit, match="dtype float32, declared uint8"):
        reader.read(np.zeros((8, 8, 3), np.float32))
    with pytest.raises(Unfit, match="numbers from 0 to 256, declared from 0 to 255"):
        reader.read(np.where(np.arange(192).reshape(8, 8, 3) == 5, 256, 0))
    listed = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    np.testing.assert_array_equal(reader.read(listed.tolist()), listed.reshape(-1), strict=True)
    with pytest.raises(UserError, match="holds no numbers"):
        read_observations(image((8, 8, 0)))


def test_a_description_of_vectors_is_what_it_was_and_one_of_images_comes_back() -> None:
    vectors = TaskSpec("vectors", Box(3, -np.inf, np.inf), Discrete(2), 1)
    assert spec_to_json(vectors, 5)["observation"] == {"box": 3}
    written = spec_to_json(SPEC, 5)
    assert written["observation"] == {"box": 144, "image": [8, 9, 2]}
    assert task_from_json(written) == HostTask(5, SPEC)


# The replay


def moment(number: int) -> Transition:
    rng = np.random.default_rng(number)
    seen, then = (jnp.asarray(rng.integers(0, 256, 144), jnp.uint8) for _ in range(2))
    return Transition(
        seen, jnp.asarray(number % 3, jnp.int32), jnp.asarray(0.5 * number), then, jnp.asarray(number % 2 == 0)
    )


@pytest.mark.parametrize("with_option", [False, True])
def test_the_replay_gives_back_every_byte(with_option: bool) -> None:
    layout = ReplayLayout.of(SPEC, 4, with_option=with_option)
    rows = layout.init()
    assert isinstance(rows, ImageRows) and rows.images.dtype == jnp.uint8
    assert rows.images.shape == (4, 288) and rows.numbers.shape == (4, 3 + with_option)
    assert layout.row_bytes == 288 + 4 * (3 + with_option)
    moments = [moment(n)._replace(option=jnp.asarray(n, jnp.int32) if with_option else None) for n in range(6)]
    for step, one in enumerate(moments):
        rows = layout.add(rows, one, jnp.asarray(step, jnp.int32))
    back = layout.unpack(rows)
    for place, number in enumerate((4, 5, 2, 3)):
        one = jax.tree.map(lambda leaf, place=place: leaf[place], back)
        for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(moments[number]), strict=True):
            assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
    drawn = layout.sample(rows, jax.random.key(0), 50, jnp.asarray(6))
    held = {bytes(np.asarray(moments[n].observation)) for n in (2, 3, 4, 5)}
    assert {bytes(row) for row in np.asarray(drawn.observation)} == held


def test_a_row_of_vectors_has_the_bytes_it_had() -> None:
    assert ReplayLayout.of(TaskSpec("vectors", Box(3, -1, 1), Box(2, -1, 1), 1), 9).row_bytes == 4 * (2 * 3 + 2 + 2)


# Convolutions


def by_hand(made: Convolutions, images: np.ndarray) -> np.ndarray:
    """One place and one output at a time."""
    x = images.reshape(-1, *made.image).astype(np.float64)
    for layer, weight, bias in zip(layers_for(made.image), made.weights, made.biases, strict=True):
        kernel, stride = layer.kernel, layer.stride
        rows, columns = layer.length(x.shape[1]), layer.length(x.shape[2])
        out = np.zeros((len(x), rows, columns, layer.channels))
        for i in range(rows):
            for j in range(columns):
                seen = x[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
                out[:, i, j] = np.einsum("bhwc,hwco->bo", seen, np.asarray(weight, np.float64)) + np.asarray(bias)
        x = np.maximum(out, 0.0)
    return x.reshape(len(x), -1)


@pytest.mark.parametrize("shape", [(8, 8, 3), (8, 200, 1), (19, 12, 2), (20, 21, 1), (35, 90, 1), (36, 41, 2)])
def test_convolutions_are_what_they_are_by_hand(shape: tuple[int, int, int]) -> None:
    made = make_convolutions(jax.random.key(1), shape)
    images = np.random.default_rng(0).uniform(0, 1, (3, int(np.prod(shape)))).astype(np.float32)
    answer = np.asarray(jax.jit(Convolutions.__call__)(made, jnp.asarray(images)))
    assert answer.shape == (3, convolved_size(shape)) and (answer > 0).any()
    np.testing.assert_allclose(answer, by_hand(made, images), rtol=1e-4, atol=1e-6)


def test_slopes_are_those_of_the_library_s_own_convolutions() -> None:
    made, sides = make_convolutions(jax.random.key(1), (36, 41, 2)), ("NHWC", "HWIO", "NHWC")
    images = jax.random.uniform(jax.random.key(2), (3, 36 * 41 * 2))

    def theirs(made: Convolutions, x: Array) -> Array:
        x = x.reshape(-1, *made.image)
        for layer, weight, bias in zip(NATURE, made.weights, made.biases, strict=True):
            stride = (layer.stride, layer.stride)
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(x, weight, stride, "VALID", dimension_numbers=sides)
                + bias[None, None, None]
            )
        return x.reshape(len(x), -1)

    def slopes(run: Any) -> Any:
        return jax.jit(jax.grad(lambda both: jnp.sin(9 * run(*both)).sum()))((made, images))

    pairs = zip(*map(jax.tree.leaves, (slopes(Convolutions.__call__), slopes(theirs))), strict=True)
    for mine, other in pairs:
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5 * float(jnp.abs(other).max()))


def test_convolutions_of_an_atari_frame_start_as_those_of_pytorch_do() -> None:
    made = make_convolutions(jax.random.key(0), (84, 84, 4))
    assert layers_for((84, 84, 4)) == NATURE and convolved_size((84, 84, 4)) == 3136
    assert [weight.shape for weight in made.weights] == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    for weight, bias in zip(made.weights, made.biases, strict=True):
        bound = float(np.prod(weight.shape[:3])) ** -0.5
        assert 0.99 * bound < float(jnp.abs(weight).max()) <= bound and float(jnp.abs(bias).max()) <= bound
        assert abs(float(weight.mean())) < 0.02 * bound


def test_mapped_over_roles_each_network_is_itself() -> None:
    """Values and slopes, with weights of each role's own and images that they share."""

    def make(key: Array) -> Any:
        return make_network(key, SPEC.observation, lambda key, inputs: make_mlp(key, (inputs, 4)))

    def loss(network: ImageNetwork, images: Array) -> Array:
        return jnp.square(network(images)).sum()

    keys = jax.random.split(jax.random.key(0), 2)
    images = jnp.asarray(np.random.default_rng(0).integers(0, 256, (5, 144)), jnp.uint8)
    slopes = jax.value_and_grad(loss)
    together = jax.jit(jax.vmap(slopes, in_axes=(0, None)))(jax.vmap(make)(keys), images)
    for role, key in enumerate(keys):
        alone = jax.jit(slopes)(make(key), images)
        jax.tree.map(
            lambda a, b, role=role: np.testing.assert_allclose(a[role], b, rtol=1e-3, atol=1e-6), together, alone
        )


def test_bytes_are_brought_to_one_and_floats_are_left_alone() -> None:
    network = make_network(jax.random.key(0), SPEC.observation, lambda key, inputs: make_mlp(key, (inputs, 4)))
    images = jnp.asarray(np.random.default_rng(0).integers(0, 256, (5, 144)), jnp.uint8)
    np.testing.assert_allclose(network(images), network(images.astype(float) / 255), rtol=1e-6)


# The bonus


def test_rnd_of_images_pays_the_error_before_it_learns_and_learns_what_it_has_seen() -> None:
    bonus = RND(lr=1e-3, widths=(32,), outputs=8)
    state, observe = bonus.init(jax.random.key(0), SPEC), jax.jit(bonus.observe)
    moments = [moment(number) for number in range(16)]
    for one in moments:
        state = observe(state, one)
    bytes_seen = np.stack([np.asarray(one.next_observation, np.float64) for one in moments])
    np.testing.assert_allclose(state.observations.mean, bytes_seen.mean(axis=0), rtol=1e-5)
    batch: Transition = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moments)
    inputs = bonus.inputs(state, batch.next_observation)
    expected = np.clip((bytes_seen - bytes_seen.mean(axis=0)) / bytes_seen.std(axis=0), -5, 5)
    np.testing.assert_allclose(inputs, expected, atol=1e-3)
    np.testing.assert_array_equal(inputs, standardised(state.observations, batch.next_observation.astype(float)))
    learn, reward = jax.jit(bonus.learn), jax.jit(bonus.reward)
    paid, after, first = learn(state, batch, jax.random.key(1))
    np.testing.assert_allclose(paid, reward(state, batch), rtol=1e-4)
    assert float(first) == pytest.approx(float(paid[:4].mean()), rel=1e-4), "a quarter is learned from"
    for _ in range(200):
        _, after, last = learn(after, batch, jax.random.key(1))
    assert float(last) < 0.05 * float(first)
    unseen = reward(after, jax.tree.map(lambda leaf: leaf[None], moment(99)))
    assert float(unseen[0]) > 5 * float(last)


def test_rnd_as_lesson_has_it_takes_images_through_its_frozen_trunk() -> None:
    bonus = RND(lr=1e-3, variant="lesson")
    state = jax.jit(bonus.init, static_argnums=1)(jax.random.key(0), SPEC)
    assert isinstance(state.trunk, ImageNetwork) and not isinstance(state.predictor, ImageNetwork)
    batch: Transition = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(moment(number) for number in range(8)))
    learn, first, after = jax.jit(bonus.learn), None, state
    for _ in range(100):
        _, after, loss = learn(after, batch, jax.random.key(1))
        first = loss if first is None else first
    assert first is not None and float(loss) < 0.5 * float(first)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (state.trunk, after.trunk)), strict=True))


@pytest.mark.parametrize("rows", [2, 6])
def test_slopes_of_the_first_rows_only(rows: int) -> None:
    network = make_network(jax.random.key(0), SPEC.observation, lambda key, inputs: make_mlp(key, (inputs, 4)))
    assert isinstance(network, ImageNetwork)
    inputs, wanted = (jax.random.normal(jax.random.key(n), (6, size)) for n, size in ((1, 144), (2, 4)))
    errors, loss, grads = jax.jit(learn_rows, static_argnums=3)(network, inputs, wanted, rows)
    np.testing.assert_allclose(errors, jnp.square(network(inputs) - wanted).mean(axis=-1), rtol=1e-5)
    assert float(loss) == pytest.approx(float(errors[:rows].mean()))
    slopes = jax.jit(jax.grad(lambda made: jnp.square(made(inputs) - wanted).mean(axis=-1)[:rows].mean()))(network)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), grads, slopes)


# What is chosen, and what is refused


def choice() -> Any:
    return choose_task("toy/Pixels-v0", env_module="toy_envs")


@pytest.mark.parametrize("preset", PRESETS)
def test_images_and_finitely_many_actions_get_dqn_and_rnd(preset: str) -> None:
    learner, bonus = make_parts(choice(), preset, "hyper", None, None)
    config = Settings(choice(), learner, bonus, preset=preset, steps=1_000_000).config()
    assert (config.learner, config.bonus, config.normalise_observations) == ("dqn", "rnd", False)
    assert config.capacity == 100_000 == suggest_capacity(10**9, SPEC.observation)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--learner td3", "learner: 'td3' does not learn from images, and toy/Pixels-v0 shows 8x8x2 bytes; use 'dqn'"),
        ("--learner sac", "learner: 'sac' does not learn from images"),
        ("--learner tabular_q", "learner: 'tabular_q' does not learn from images"),
        ("--bonus disagreement", "bonus: 'disagreement' does not learn from images"),
        ("--bonus icm", "with 'rnd' as the bonus"),
        ("--bonus counts", "bonus: 'counts' does not learn from images"),
        ("--normalise-observations", "normalise_observations: toy/Pixels-v0 shows images"),
    ],
)
def test_what_does_not_take_images_says_so_in_one_line(
    options: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(f"train toy/Pixels-v0 --env-module toy_envs {options}".split()) == 2
    said = capsys.readouterr().err.strip()
    assert says in said and "\n" not in said


@pytest.mark.parametrize("learner", ["td3", "dqn"])
def test_images_with_continuous_actions_fit_no_learner(learner: str) -> None:
    def env() -> Any:
        return Still(image(), spaces.Box(-1.0, 1.0, (2,)))

    with pytest.raises(UserError, match=f"learner: '{learner}'.*finite.*wrapper") as error:
        Exploit(env, horizon=5, learner=learner)
    assert "use 'td3'" not in str(error.value) and "use 'dqn'" not in str(error.value)


def test_memory_counts_bytes_as_bytes() -> None:
    learner, bonus = make_parts(choice(), "robust", "hyper", None, None)
    config = Settings(choice(), learner, bonus, steps=1_000).config()
    total, replay = estimate(build_program(config))
    assert replay == 1_000 * (2 * 128 + 4 * 3) and total > replay


# Learning


def pixels() -> gymnasium.Env[Any, Any]:
    return Pixels()


def test_dqn_learns_to_go_to_the_goal_and_is_the_same_after_loading(tmp_path: Path) -> None:
    agent = Exploit(pixels, horizon=12, warmup=200, learner=QUICK, eval_every=10_000, capacity=4_000)
    assert agent.evaluate(50)["success"] < 0.6
    agent.learn(3_000)
    assert agent.evaluate(50)["success"] >= 0.9
    agent.save(tmp_path / "agent")
    env, seen = pixels(), []
    for seed in range(20):
        seen.append(env.reset(seed=seed)[0])
    actions, _ = agent.predict(np.stack(seen))
    loaded = Exploit.load(tmp_path / "agent", env=pixels)
    for other in (agent, loaded, Exploit.load(tmp_path / "agent")):
        np.testing.assert_array_equal([other.predict(picture)[0] for picture in seen], actions)
    with pytest.raises(UserError, match="dtype float64, declared uint8"):
        loaded.predict(seen[0] / 255)
    for name, goes_on in (("one", agent), ("other", loaded)):
        goes_on.learn(40)
        goes_on.save(tmp_path / name)
    assert differing(tmp_path / "one", tmp_path / "other") == []


@pytest.mark.long
def test_lesson_and_the_minigrid_preset_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(f"train {COMMAND} --steps 60 --method lesson --preset minigrid --out {out}".split()) == 0
    last = {name: values[-1] for name, values in RunFolder.open(out)[0].read_curve().items()}
    assert last["step"] == 60 and last["finite"] == 1 and last["bonus_loss"] > 0


class StopsAt(Silent):
    def update(self, step: int, note: str) -> None:
        if step >= 60:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stopping(*args: object) -> Iterator[Silent]:
    yield StopsAt()


def test_stopped_and_resumed_it_ends_in_the_same_bytes_and_another_image_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, words = tmp_path / "run", f"{COMMAND} --method exploit --seeds 2 --env.goal 3 --capacity 50"
    monkeypatch.setattr("hyper_rl.cli.train.show_progress", stopping)
    assert main(f"train {words} --steps 110 --out {out}".split()) == 130
    monkeypatch.setattr("hyper_rl.cli.train.show_progress", show_progress)
    made = toy_envs.Pixels._draw
    with monkeypatch.context() as changed:
        changed.setattr(toy_envs.Pixels, "_draw", lambda self: made(self) // 2)
        capsys.readouterr()
        assert main(f"train --resume {out}".split()) == 2
    assert "the image is another than before the stop. The environment does not" in capsys.readouterr().err
    assert main(f"train --resume {out} --env-workers 2".split()) == 0
    _, config = RunFolder.open(out)
    train(config, tmp_path / "never stopped")
    assert differing(tmp_path / "never stopped", out) == []


def test_a_replay_of_images_is_stored_without_its_unused_end_and_grows() -> None:
    nothing: Any = RunState(*[None] * 8)  # type: ignore[arg-type]
    small, large = (SimpleNamespace(capacity=capacity) for capacity in (4, 6))
    rows = ReplayLayout.of(SPEC, 4).init()
    for step in range(3):
        rows = ReplayLayout.of(SPEC, 4).add(rows, moment(step), jnp.asarray(step, jnp.int32))
    runs = nothing._replace(replay=jax.tree.map(lambda ring: ring[None], rows))
    assert isinstance(rows, ImageRows)
    stored: Any = pack(small, runs, 3).replay  # type: ignore[arg-type]
    assert (stored.numbers.shape, stored.images.shape) == ((1, 3, 3), (1, 3, 288))
    grown: Any = carry_over(small, large, runs, 3).replay  # type: ignore[arg-type]
    assert (grown.numbers.shape, grown.images.shape, grown.images.dtype) == ((1, 6, 3), (1, 6, 288), jnp.uint8)
    np.testing.assert_array_equal(grown.images[0, :4], rows.images)


# Looking at an environment


def findings(make: Any) -> dict[str, Finding]:
    found, _ = check_environment(EnvSource("pictures", factory=make, horizon=12), 60)
    return {finding.topic: finding for finding in found}


def test_check_env_looks_at_images_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(pixels)
    assert [topic for topic, finding in found.items() if finding.status == "problem"] == []
    assert "an image of 8 x 8 pixels and 2 channels" in found["spaces"].says and "shape" not in found
    assert found["observations"].status == "ok" and "bytes from 0 to 255" in found["observations"].says
    assert found["memory"].data["replay_bytes"] == 100_000 * (2 * 128 + 4 * 3)
    assert run_check_env(["toy/Pixels-v0", "--env-module", "toy_envs", "--steps", "40"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "dqn fits these spaces" in said and "Ready: hyper-rl train toy/Pixels-v0" in said


def test_check_env_notices_symbols_and_pictures_that_never_change() -> None:
    class Shown(Still):
        def __init__(self, brightest: int) -> None:
            super().__init__(image((8, 8)))
            self._brightest = brightest

        def reset(self, **keywords: Any) -> Any:
            return np.zeros((8, 8), np.uint8), super().reset(**keywords)[1]

        def step(self, action: Any) -> Any:
            _, *rest = super().step(action)
            return np.full((8, 8), self._brightest, np.uint8), *rest

    assert "grid of symbols" in findings(lambda: Shown(10))["observations"].says
    assert "nothing ever changed" in findings(lambda: Shown(0))["observations"].says
