"""The agent objects: learn, predict, evaluate, save, load, set_env, callbacks."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import hyper_rl
import toy_envs
from hyper_rl import Curiosity, Decouple, Exploit, Hyper
from hyper_rl.acting import Interface, make_act
from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.callbacks import Evaluation, SaveBest, SaveCheckpoints, StopAtSuccess
from hyper_rl.cli.main import main
from hyper_rl.envs.action_writer import ChoiceWriter
from hyper_rl.envs.observation_reader import read_observations
from hyper_rl.errors import UserError
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.td3 import TD3
from hyper_rl.training.run_folder import RunFolder

pytestmark = pytest.mark.xdist_group("agent")

SMALL: dict[str, Any] = {"learner": TD3(widths=(16, 16), batch_size=16), "eval_every": 200, "eval_episodes": 2}
MODELS = Disagreement(widths=(16,))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Hyper, Path]:
    agent = Hyper("Pendulum-v1", bonus=MODELS, seed=1, warmup=100, **SMALL)
    agent.learn(400)
    path = tmp_path_factory.mktemp("agents") / "pendulum"
    agent.save(path)
    return agent, path


def test_learning_is_recorded(trained: tuple[Hyper, Path]) -> None:
    agent, _ = trained
    assert agent.num_timesteps == 400 and [row["step"] for row in agent.curve] == [200, 400]
    assert agent.config.method == "hyper" and agent.config.bonus == "disagreement" and agent.config.seeds == (1,)


def test_predict_one_and_many(trained: tuple[Hyper, Path]) -> None:
    agent, _ = trained
    space = gymnasium.make("Pendulum-v1").action_space
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    many, state = agent.predict(observations)
    assert state is None and many.shape == (5, 1)
    for observation, action in zip(observations, many, strict=True):
        one, _ = agent.predict(observation)
        assert one.shape == space.shape and one.dtype == space.dtype and space.contains(one)
        np.testing.assert_allclose(one, action, rtol=1e-5, atol=1e-6)
    for bad, says in ((np.zeros(4), "shape"), (np.full(3, np.nan), "nan")):
        with pytest.raises(UserError, match=says):
            agent.predict(bad)


def by_sign(seen: np.ndarray) -> np.ndarray:
    """A policy to see what was read: 1 where a mixture of it is positive."""
    return (seen @ np.cos(np.arange(seen.shape[-1])) > 0).astype(int)


def stacked(nest: Any, drawn: list[Any]) -> Any:
    out: Any = gymnasium.vector.utils.create_empty_array(nest, len(drawn))
    return gymnasium.vector.utils.concatenate(nest, drawn, out) if drawn else out


def test_batches_of_nests_are_read_one_by_one() -> None:
    """As a list, and as one nest of arrays; the actions are those of each alone."""
    space: Any = toy_envs.Nested().observation_space
    tuples = gymnasium.spaces.Tuple((space["place"], space["mode"]))
    nests: list[Any] = [space, tuples, gymnasium.spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))]
    for nest in nests:
        nest.seed(0)
        interface = Interface(read_observations(nest), ChoiceWriter(2, 5))
        drawn = [nest.sample() for _ in range(9)]
        alone = [interface.apply(by_sign, one) for one in drawn]
        assert set(alone) == {5, 6}
        for batch in (drawn, stacked(nest, drawn)):
            np.testing.assert_array_equal(interface.apply(by_sign, batch), alone)
        nothing = interface.apply(by_sign, stacked(nest, []))
        assert nothing.shape == (0,) and nothing.dtype == np.int64
    ragged = {**stacked(space, [space.sample()] * 2), "mode": np.ones(3, np.int64)}
    with pytest.raises(UserError, match=r"observation\['inner'\]\[0\] has shape \(2, 2\), declared \(2,\)"):
        Interface(read_observations(space), ChoiceWriter(2, 5)).apply(by_sign, ragged)


def test_a_nest_without_its_environment_and_empty_or_ragged_batches(trained: tuple[Hyper, Path]) -> None:
    agent, _ = trained
    nothing = agent.predict(np.zeros((0, 3)))[0]
    assert nothing.shape == (0, 1) and nothing.dtype == np.float32
    for bad, says in (
        (np.zeros((0, 4)), r"shape \(0, 4\), declared \(3,\)"),
        ([[1, 2, 3], [1, 2]], "no array of numbers"),
    ):
        with pytest.raises(UserError, match=says):
            agent.predict(bad)
    config = Hyper("toy/Nested-v0").config
    for given in (toy_envs.Nested().observation_space.sample(), np.zeros(4)):
        with pytest.raises(
            UserError, match=r"gymnasium\.spaces\.flatten makes of an observation, with load\(\.\.\., env="
        ):
            Interface.of(config, None).apply(by_sign, given)


def test_a_loaded_agent_predicts_and_goes_on_exactly(trained: tuple[Hyper, Path], tmp_path: Path) -> None:
    """Stopped, saved, loaded and continued equals never stopped; loaded twice, both continue alike."""
    agent, path = trained
    observation = np.array([0.3, -0.2, 1.0], np.float32)
    loaded, again = hyper_rl.load(path), Hyper.load(path)
    assert type(loaded) is Hyper and loaded.num_timesteps == 400
    np.testing.assert_array_equal(loaded.predict(observation)[0], agent.predict(observation)[0])
    for one in (agent, loaded, again):
        one.learn(250)
    rows = [one.curve[-1] for one in (agent, loaded, again)]
    assert rows[0] == pytest.approx(rows[1], rel=0, abs=0, nan_ok=True)
    assert rows[1] == pytest.approx(rows[2], rel=0, abs=0, nan_ok=True)
    np.testing.assert_array_equal(loaded.predict(observation)[0], agent.predict(observation)[0])
    # What was saved is a run folder that has not finished.
    folder, config = RunFolder.open(path)
    assert config == hyper_rl.load(path).config and len(folder.read_curve()["step"]) == 2


def test_a_policy_alone_predicts_without_gymnasium_and_does_not_learn(
    trained: tuple[Hyper, Path], tmp_path: Path
) -> None:
    agent, _ = trained
    path = tmp_path / "small"
    agent.save(path, policy_only=True)
    assert sorted(file.name for file in path.iterdir()) == ["agent.json", "policy.safetensors"]
    program = f"""
import sys
for name in ("gymnasium", "gymnasium_robotics", "mujoco", "rich", "tyro"):
    sys.modules[name] = None
import hyper_rl, numpy
print(repr(float(hyper_rl.load({str(path)!r}).predict(numpy.array([0.3, -0.2, 1.0], numpy.float32))[0][0])))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    here = agent.predict(np.array([0.3, -0.2, 1.0], np.float32))[0][0]
    assert float(done.stdout) == pytest.approx(float(here), rel=1e-6)
    with pytest.raises(UserError, match="holds a policy alone"):
        hyper_rl.load(path).learn(10)
    with pytest.raises(UserError, match="'hyper', not of 'exploit'"):
        Exploit.load(path)
    with pytest.raises(UserError, match="exists already"):
        agent.save(path)


def test_threads_get_what_one_gets_alone(trained: tuple[Hyper, Path]) -> None:
    agent = hyper_rl.load(trained[1])
    observations = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    alone = [agent.predict(observation)[0] for observation in observations]
    seen: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        seen[number] = [agent.predict(observation)[0] for observation in observations]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answers in seen.values():
        np.testing.assert_array_equal(np.stack(answers), np.stack(alone))


@pytest.mark.parametrize("learner", [TD3(widths=(8,)), SAC(widths=(8,)), DQN(widths=(8,), layer_norm=True)])
def test_the_quick_policies_are_the_learners_own(learner: Any) -> None:
    import jax
    import jax.numpy as jnp

    from hyper_rl.envs.base import Box, Discrete, TaskSpec
    from hyper_rl.learners.normalised import Normalised

    action = Discrete(3) if isinstance(learner, DQN) else Box(2, -1.0, 1.0)
    spec = TaskSpec("probe", Box(4, -np.inf, np.inf), action, 1)
    observations = np.random.default_rng(2).normal(size=(50, 4)).astype(np.float32)
    for one in (learner, Normalised(learner)):
        policy = one.policy(one.init(jax.random.key(3), spec, jnp.zeros((), float)))
        quick = make_act(one, policy, spec)(observations)
        slow = [one.judge(policy, jnp.asarray(o), jax.random.key(0)) for o in observations]
        np.testing.assert_allclose(quick, np.stack(slow), rtol=2e-5, atol=2e-6)


def test_callbacks_see_and_stop(tmp_path: Path) -> None:
    seen: list[Evaluation] = []
    agent = Exploit("Pendulum-v1", warmup=100, **SMALL)
    best, saved = SaveBest(tmp_path / "best", by="return"), SaveCheckpoints(tmp_path / "all", every=1, keep=1)

    def stop(evaluation: Evaluation) -> bool:
        seen.append(evaluation)
        return evaluation.step < 400

    agent.learn(2_000, callback=[stop, best, saved])
    assert agent.num_timesteps == 400 and [evaluation.step for evaluation in seen] == [200, 400]
    returns = [evaluation.metrics["return"] for evaluation in seen]
    assert best.best == (max(returns), max(returns))
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["step-000000000400"]
    assert hyper_rl.load(tmp_path / "best").num_timesteps == 200 * (1 + int(np.argmax(returns)))
    again = hyper_rl.load(tmp_path / "all" / "step-000000000400")
    again.learn(200)
    assert again.num_timesteps == 600

    goal = StopAtSuccess(0.8, evaluations=2)
    answers = [goal(Evaluation(0, {"success": rate}, print)) for rate in (0.9, 0.5, 0.8, 1.0)]
    assert answers == [True, True, True, False]


def test_a_given_environment_is_used_and_left_open() -> None:
    env = gymnasium.make("Pendulum-v1")
    agent = Curiosity(env, bonus=MODELS, warmup=100, **SMALL)
    agent.evaluate(1)  # before learning: the environment is looked at, used, given back and used again
    agent.learn(200)
    assert set(agent.evaluate(2)) == {"success", "return", "steps_to_goal", "discounted_return", "critic_estimate"}
    agent.close()
    env.reset()  # still open

    plain = gymnasium.make("Pendulum-v1").unwrapped
    plain.spec = None
    with pytest.raises(UserError, match="states no episode limit"):
        Exploit(plain, eval_env=lambda: gymnasium.make("Pendulum-v1"), **SMALL)
    with pytest.raises(UserError, match="eval_env"):
        Exploit(plain, horizon=50, **SMALL)
    made = Decouple(lambda: gymnasium.make("Pendulum-v1"), bonus=MODELS, warmup=100, **SMALL).learn(200)
    assert made.num_timesteps == 200
    made.set_env(gymnasium.make("Pendulum-v1", g=9.0))
    made.learn(100)
    spaces = (
        r"other spaces \(observations Box of shape \(2,\) .* than .*observations Box of shape \(3,\) and actions Box"
    )
    with pytest.raises(UserError, match=spaces):
        made.set_env("MountainCarContinuous-v0")


def still(seen: int, action: Any) -> Any:
    return toy_envs.Still(gymnasium.spaces.Box(-1.0, 1.0, (seen,)), action)


BETWEEN = gymnasium.spaces.Box(-2.0, 2.0, (1,))


@pytest.mark.parametrize(
    ("judged", "says"),
    [
        (
            lambda: still(4, BETWEEN),
            "with observations Box of shape (4,) and actions Box of shape (1,) from -2 to 2, must",
        ),
        (
            lambda: still(3, gymnasium.spaces.Discrete(2)),
            "actions Discrete(2), must be as those of Pendulum-v1, with obs",
        ),
        (lambda: still(3, gymnasium.spaces.Box(-1.0, 2.0, (1,))), "actions Box of shape (1,) from -1 to 2, must be as"),
        (lambda: gymnasium.make("Pendulum-v1", max_episode_steps=5), "environment eval_env cuts its episodes there"),
        (None, "gave the environment that is trained in"),
    ],
)
def test_judging_happens_in_spaces_like_those_of_training(judged: Any, says: str) -> None:
    env = gymnasium.make("Pendulum-v1")
    with pytest.raises(UserError) as caught:
        Exploit(env, eval_env=judged or (lambda: env), horizon=20, **SMALL)
    assert "eval_env" in str(caught.value) and says in str(caught.value)
    Exploit(env, eval_env=lambda: still(3, BETWEEN), horizon=20, **SMALL)


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> Any:
        return 2 * reward


def test_a_wrapper_that_cannot_be_made_again_is_told_at_once_with_the_remedy() -> None:
    env = Doubled(gymnasium.make("Pendulum-v1"))
    with pytest.raises(
        UserError, match=r"wrapped in Doubled.*give eval_env=, a function that makes one, or a function"
    ):
        Exploit(env, **SMALL)
    Exploit(env, eval_env=lambda: Doubled(gymnasium.make("Pendulum-v1")), **SMALL)


def test_jax_tasks_run_compiled(tmp_path: Path) -> None:
    agent = Hyper("Room", beta=0.01, eval_every=5_000).learn(20_000)
    assert agent.config.host is None and agent.config.learner == "tabular_q"
    agent.save(tmp_path / "room")
    loaded = hyper_rl.load(tmp_path / "room")
    assert loaded.predict(465)[0] == agent.predict(465)[0] and agent.predict(np.arange(4))[0].shape == (4,)
    assert loaded.learn(1_000).num_timesteps == 21_000


def test_a_second_budget_goes_on_at_the_end_of_the_schedule() -> None:
    agent = Hyper("Room", eval_every=1_000, p_start=0.5, p_end=0.1)
    agent.learn(1_000).learn(1_000)
    assert [round(row["p"], 3) for row in agent.curve] == [0.1, 0.1] and agent.config.schedule_steps == 1_000


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Hyper("Pendulum-v1", learner="ppo"), "learner: unknown 'ppo'"),
        (lambda: Hyper("Pendulum-v1", bonus="rndd"), "bonus: unknown 'rndd'; did you mean rnd"),
        (lambda: Hyper("Pendulum-v1", beta=-1.0), "beta: got -1.0"),
        (lambda: Hyper("Pendulum-v1", colour="red"), "colour: not a setting"),
        (lambda: Hyper("Pendulum-v9"), "Pendulum-v9"),
        (lambda: Hyper(7), "env: got 7"),
        (lambda: Hyper("Pendulum-v1", learner="dqn"), "'dqn'"),
        (lambda: Hyper("Pendulum-v1").learn(0), "total_timesteps: got 0"),
        (lambda: Exploit("Pendulum-v1", bonus="rnd"), "must be left out with method 'exploit'"),
        (lambda: hyper_rl.load("nowhere"), "nowhere: not an agent folder"),
    ],
)
def test_bad_input_gives_one_clear_line(make: Any, says: str) -> None:
    with pytest.raises(UserError) as caught:
        make()
    assert says in str(caught.value) and "\n" not in str(caught.value)


def maze() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("hyper_rl/MediumMaze-Easy-v0")


def in_centimetres() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TransformObservation(maze(), lambda seen: 100 * seen, None)


@pytest.mark.parametrize(
    "make, learner, normalised",
    [
        (maze, "td3", False),
        (in_centimetres, "td3", True),
        (lambda: gymnasium.make("hyper_rl/Room-v0"), "tabular_q", False),
        (lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make("hyper_rl/Room-v0")), "dqn", True),
    ],
    ids=["maze", "maze in centimetres", "room", "room as vectors"],
)
def test_a_task_of_ours_is_ours_at_every_door_until_it_is_wrapped(make: Any, learner: str, normalised: bool) -> None:
    for env in (make, make()):
        config = Hyper(env).config
        assert (config.learner, config.normalise_observations) == (learner, normalised)


def test_the_command_does_not_judge_what_it_cannot_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Hyper(gymnasium.make("Pendulum-v1"), bonus=MODELS, warmup=50, **SMALL)
    agent.learn(100)
    agent.save(tmp_path / "agent", policy_only=True)
    assert main(["evaluate", str(tmp_path / "agent")]) == 2
    assert "environment object (Pendulum-v1)" in capsys.readouterr().err
