"""What an agent object must not do: lose a file, act as an older self, or take nonsense without a word."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyper_rl
import toy_envs
from hyper_rl import Exploit, Hyper
from hyper_rl.agent_budget import Asked
from hyper_rl.agent_store import current_agent, read_saved
from hyper_rl.bonuses.icm import ICM
from hyper_rl.callbacks import Evaluation, SaveBest, SaveCheckpoints, combine
from hyper_rl.cli.evaluate import find_agents
from hyper_rl.cli.main import main
from hyper_rl.config import build_program, first_difference
from hyper_rl.envs.registry import has_success
from hyper_rl.errors import UserError
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.settings import choose_task
from hyper_rl.training import memory
from hyper_rl.training.agent_file import read_agent
from hyper_rl.training.host_loop import _compiled_step
from hyper_rl.training.run_folder import RunFolder

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("agent-safety")

ROOM: dict[str, Any] = {"eval_every": 500, "eval_episodes": 2}
TOY: dict[str, Any] = {"horizon": 12, "eval_every": 100, "eval_episodes": 2}


def same_policies(one: Any, other: Any) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def refused(make: Any) -> str:
    with pytest.raises(UserError) as caught:
        make()
    line = str(caught.value)
    assert "\n" not in line
    return line


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# An agent that the command has trained on


@pytest.fixture(scope="module", params=["compiled", "gymnasium"])
def extended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(saved by an agent object, the same after the command has gone on with it)."""
    folder = tmp_path_factory.mktemp("extended")
    settings = {"env": "Room", "beta": 0.01, **ROOM} if request.param == "compiled" else {"env": "toy/Steps-v0", **TOY}
    agent = Hyper(**settings, seed=3)
    agent.learn(1_000 if request.param == "compiled" else 100)
    agent.save(folder / "before")
    agent.close()
    shutil.copytree(folder / "before", folder / "after")
    steps = "3000" if request.param == "compiled" else "300"
    assert main(["train", "--resume", str(folder / "after"), "--extend-steps", steps]) == 0
    return folder / "before", folder / "after"


def test_what_the_command_trained_on_is_the_agent_as_it_stands(extended: tuple[Path, Path]) -> None:
    before, after = extended
    newest = read_agent(after / "runs" / "0" / "agent")
    assert newest.meta["step"] == 3 * read_agent(before).meta["step"]
    assert not same_policies(newest.policy, read_agent(after).policy), "the one at the top is left as it was saved"
    assert current_agent(before) == before and current_agent(after) == after / "runs" / "0" / "agent"
    judged = find_agents(after, None)[2][0]
    assert same_policies(judged.policy, newest.policy)

    agent = hyper_rl.load(after)
    assert agent.num_timesteps == newest.meta["step"] == agent.curve[-1]["step"]
    agent.learn(agent.config.eval_every)
    steps = [row["step"] for row in agent.curve]
    assert steps == sorted(set(steps)) and steps[-1] == newest.meta["step"] + agent.config.eval_every
    agent.close()


def test_a_command_that_was_killed_leaves_the_policy_of_its_checkpoint(
    extended: tuple[Path, Path], tmp_path: Path
) -> None:
    """Without an agent file, and with rows in the curve that no checkpoint has seen."""
    newest = read_agent(extended[1] / "runs" / "0" / "agent")
    folder = RunFolder(tmp_path / "killed")
    shutil.copytree(extended[1], folder.path)
    shutil.rmtree(folder.path / "runs")
    folder.result.unlink()
    step = str(newest.meta["step"])
    last = folder.curve.read_text().splitlines()[-1]
    folder.curve.write_text(folder.curve.read_text() + last.replace(step, str(2 * int(step)), 1) + "\n")

    assert current_agent(folder.path) is None
    saved = read_saved(folder.path)
    assert saved.step == saved.agent.meta["step"] == saved.curve[-1]["step"] == newest.meta["step"]
    assert same_policies(saved.agent.policy, newest.policy)


def test_a_damaged_checkpoint_is_told_and_the_one_before_decides(extended: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = extended
    folder = RunFolder(tmp_path / "damaged")
    shutil.copytree(after, folder.path)
    for old in (before / "checkpoint").iterdir():
        shutil.copytree(old, folder.checkpoints / old.name)
    newest = max(folder.checkpoints.glob("step-*"))
    (newest / "state.safetensors").write_bytes(b"")
    agent, saved = hyper_rl.load(folder.path), hyper_rl.load(before)
    with pytest.warns(UserWarning, match="refused"):
        agent.learn(10)
    assert agent.num_timesteps == saved.num_timesteps + 10
    assert [row["step"] for row in agent.curve][:-1] == [row["step"] for row in saved.curve]
    agent.close()


def test_an_agent_does_not_go_on_from_what_it_was_not_loaded_with(extended: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "agent"
    shutil.copytree(extended[0], path)
    agent = hyper_rl.load(path)
    shutil.rmtree(path)
    shutil.copytree(extended[1], path)
    assert "load it again" in refused(lambda: agent.learn(10))


# Files of others


@pytest.fixture(scope="module")
def agent() -> Hyper:
    return Hyper("Room", **ROOM).learn(500)


def test_only_a_saved_agent_is_replaced(agent: Hyper, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    agent.save(mine)
    assert "exists already" in refused(lambda: agent.save(mine))
    agent.save(mine, overwrite=True)
    agent.save(mine, overwrite=True, policy_only=True)
    assert sorted(contents(mine)) == ["agent.json", "policy.safetensors"]

    (tmp_path / "empty").mkdir()
    agent.save(tmp_path / "empty", policy_only=True)

    thesis = tmp_path / "thesis"
    (thesis / "figures").mkdir(parents=True)
    (thesis / "figures" / "1.png").write_text("years of work")
    (thesis / "agent.json").write_text(json.dumps({"name": "Smith"}))
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("a file")
    link.symlink_to(mine)
    for path in (thesis, file, link):
        line = refused(lambda path=path: agent.save(path, overwrite=True))
        assert str(path) in line and "is not an agent that was saved" in line
    assert contents(thesis)["figures/1.png"] == b"years of work" and file.read_text() == "a file" and link.is_symlink()
    assert "is not a folder" in refused(lambda: agent.save(file / "agent"))
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "empty", "thesis", "file", "link"}, "no leftovers"


@pytest.mark.parametrize("name", ["notes.txt", "runs/0/judged.gif", "checkpoint/notes.txt", "runs/1/agent/agent.json"])
def test_what_lies_beside_an_agent_is_not_lost(agent: Hyper, tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine"
    agent.save(path)
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("mine")
    before = contents(path)
    assert f"also holds {name}" in refused(lambda: agent.save(path, overwrite=True))
    assert contents(path) == before


def test_a_folder_that_is_being_trained_is_not_replaced(agent: Hyper, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    agent.save(path)
    with RunFolder(path).lock():
        assert "is being trained by another process" in refused(lambda: agent.save(path, overwrite=True))
    (path / ".lock").write_text("process 1 on a machine that lost its power\n")
    agent.save(path, overwrite=True)


def test_what_the_command_has_added_is_replaced_with_the_agent(extended: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "extended"
    shutil.copytree(extended[1], path)
    agent = hyper_rl.load(path)
    agent.learn(10)
    agent.save(path, overwrite=True)
    assert hyper_rl.load(path).num_timesteps == agent.num_timesteps and not (path / "runs").exists()
    agent.close()


@pytest.mark.parametrize("callback", [SaveBest, SaveCheckpoints])
def test_a_callback_refuses_before_training(callback: Any, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    inside = precious / "step-000000000500" if callback is SaveCheckpoints else precious
    inside.mkdir(parents=True)
    (inside / "thesis.tex").write_text("years of work")
    agent = Hyper("Room", **ROOM)
    assert "exists already" in (line := refused(lambda: agent.learn(500, callback(precious)))) or "holds" in line
    assert "is not an agent" in refused(lambda: agent.learn(500, [callback(precious, overwrite=True)]))
    (tmp_path / "file").write_text("")
    assert "folder: " in refused(lambda: agent.learn(500, callback(tmp_path / "file" / "below")))
    assert agent.num_timesteps == 0 and contents(precious).popitem()[1] == b"years of work"


def test_callbacks_go_on_with_their_own_and_spare_those_of_other_runs(tmp_path: Path) -> None:
    best, saved = SaveBest(tmp_path / "best"), SaveCheckpoints(tmp_path / "all", every=1, keep=1)
    agent = Hyper("Room", **ROOM)
    agent.learn(500, [best, saved]).learn(500, [best, saved])
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["step-000000001000"]

    other = Hyper("Room", **ROOM, seed=1)
    assert "overwrite=True" in refused(lambda: other.learn(500, SaveBest(tmp_path / "best")))
    assert "step-000000001000" in refused(lambda: other.learn(1_000, SaveCheckpoints(tmp_path / "all", every=1)))
    other.learn(500, SaveBest(tmp_path / "best", overwrite=True))
    assert read_agent(tmp_path / "best").meta["seed"] == 1
    again = hyper_rl.load(tmp_path / "all" / "step-000000001000")
    again.learn(500, SaveCheckpoints(tmp_path / "all", every=1))  # goes on from there: nothing in the way
    assert len(list((tmp_path / "all").iterdir())) == 2


# A policy alone


def test_a_policy_alone_is_judged_as_the_whole_agent_is(agent: Hyper, tmp_path: Path) -> None:
    agent.save(tmp_path / "whole")
    agent.save(tmp_path / "policy", policy_only=True)
    alone = hyper_rl.load(tmp_path / "policy")
    judged = hyper_rl.load(tmp_path / "whole").evaluate(2)
    assert alone.evaluate(2) == pytest.approx(judged, rel=1e-6, nan_ok=True)
    alone.save(tmp_path / "again", policy_only=True)
    assert contents(tmp_path / "again") == contents(tmp_path / "policy")
    for go_on in (lambda: alone.learn(10), lambda: alone.save(tmp_path / "more")):
        assert "holds a policy alone" in refused(go_on)


def test_a_loaded_agent_that_replaces_its_own_folder_goes_on(agent: Hyper, tmp_path: Path) -> None:
    agent.save(tmp_path / "agent")
    loaded = hyper_rl.load(tmp_path / "agent")
    loaded.save(tmp_path / "agent", policy_only=True, overwrite=True)
    assert loaded.learn(100).num_timesteps == agent.num_timesteps + 100


def test_a_task_without_success_has_none() -> None:
    """Not 0: nobody failed. An environment of one's own is not ours, whatever its name."""
    assert np.isnan(Exploit("CartPole", learner=DQN(widths=(8,)), eval_episodes=1).evaluate(1)["success"])
    given = {"given": True, "success": "info"}
    assert has_success("CartPole", given) and has_success("Hopper", {**given, "given": False, "success": "reward"})
    assert not has_success("Hopper", {**given, "given": False}) and has_success("SparseHopper", None)


def test_the_policy_of_a_loaded_agent_is_saved_without_its_environment(tmp_path: Path) -> None:
    env = gymnasium.make("toy/Steps-v0")
    Hyper(env, **TOY).save(tmp_path / "agent")
    hyper_rl.load(tmp_path / "agent").save(tmp_path / "policy", policy_only=True)
    assert hyper_rl.load(tmp_path / "policy").predict(6)[0] in (1, 2)


def test_judging_leaves_the_given_environment_to_training() -> None:
    """Also where its environments are closed and to be opened again, as after a `set_env` that failed."""
    env = gymnasium.make("toy/Steps-v0")
    agent = Hyper(env, **TOY).learn(10)
    loop: Any = agent._loop
    loop.close()
    loop._astray = True
    assert "success" in agent.evaluate(1)
    agent.learn(10)
    assert loop._pool._environments[0].env.unwrapped is env.unwrapped
    agent.close()


def test_what_differs_is_found_beside_options_that_are_absent() -> None:
    one = Hyper("Room", env_kwargs={"subgoal": (16, 17)}, warmup=0).config
    absent = dataclasses.replace(one, task_options={}, warmup=7)
    assert first_difference(one, one) is None
    found = first_difference(one, absent)
    assert found is not None and (found[0], found[2]) == ("task_options.subgoal", "nothing")
    null = dataclasses.replace(one, task_options={"subgoal": None})
    assert first_difference(null, absent) is not None


def test_what_the_command_wrote_is_judged_from_python(extended: tuple[Path, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(extended[1] / "runs", run / "runs")
    shutil.copy(extended[1] / "config.json", run / "config.json")
    assert set(hyper_rl.load(run / "runs" / "0" / "agent").evaluate(2)) >= {"success", "return"}
    assert f"a run folder, not an agent; its agents lie inside, that of run 0 in {run}" in refused(
        lambda: hyper_rl.load(run)
    )
    shutil.rmtree(run / "runs")
    assert "a run folder without an agent yet" in refused(lambda: hyper_rl.load(run))


def test_a_policy_alone_is_judged_beside_the_environment_that_was_given(tmp_path: Path) -> None:
    """One that was trained on an object, by its id's name: the name alone does not lead back to it."""
    Hyper(gymnasium.make("toy/Steps-v0"), **TOY).save(tmp_path / "agent", policy_only=True)
    assert "give it with load(..., env=...)" in refused(lambda: hyper_rl.load(tmp_path / "agent").evaluate(2))
    env = gymnasium.make("toy/Steps-v0")
    assert "success" in hyper_rl.load(tmp_path / "agent", env=env).evaluate(2)
    assert not env.get_wrapper_attr("has_reset"), "its episode in progress is nobody else's business"


def test_an_agent_says_what_it_is_and_is_kept_by_save_alone(
    agent: Hyper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = f"Hyper('Room', learner='tabular_q', bonus='counts', beta=1, seed=0, num_timesteps={agent.num_timesteps})"
    assert repr(agent) == says
    assert repr(Exploit("Room")) == "Exploit('Room', learner='tabular_q', seed=0, num_timesteps=0)"
    for keep in (copy.copy, copy.deepcopy, pickle.dumps):
        assert "use save(path) and load(path)" in refused(lambda keep=keep: keep(agent))
    monkeypatch.setenv("HOME", str(tmp_path))
    agent.save("~/agent", policy_only=True)
    assert (tmp_path / "agent").is_dir() and not Path("~").exists()
    assert repr(hyper_rl.load("~/agent")) == says.replace(" bonus='counts',", "")
    for place in (lambda: agent.save(3), lambda: hyper_rl.load(3)):  # type: ignore[arg-type]
        assert "path: got 3, must be a path" in refused(place)
    assert f"folder: {tmp_path / 'agent'} exists already" in refused(lambda: agent.learn(10, SaveBest("~/agent")))


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (False, False),
        (np.bool_(False), False),
        (jnp.asarray(False), False),
        (np.bool_(True), True),
        (None, True),
        (0, True),
    ],
)
def test_a_callback_stops_with_any_false(answer: Any, goes_on: bool) -> None:
    assert combine([lambda _: None, lambda _: answer])(Evaluation(0, {}, print)) is goes_on


# Options that a file cannot hold as they are


@pytest.mark.parametrize(
    ("given", "kept"), [(np.int64(6), 6), (np.float32(0.5), 0.5), (np.bool_(True), True), (np.arange(3), [0, 1, 2])]
)
def test_numpys_options_are_saved_as_plain_ones(given: Any, kept: Any, tmp_path: Path) -> None:
    agent = Hyper("toy/Steps-v0", env_kwargs={"wrong": given}, **TOY)
    assert agent._choice is not None and agent._choice.source is not None
    assert agent._choice.source.kwargs["wrong"] is given, "the environment itself gets what was given"
    agent.save(tmp_path / "whole")
    agent.save(tmp_path / "policy", policy_only=True)
    for name in ("whole", "policy"):
        assert hyper_rl.load(tmp_path / name).config.task_options == {"wrong": kept}
    agent.close()


def test_an_option_that_no_file_can_hold_is_asked_for_when_it_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Hyper("toy/Steps-v0", env_kwargs={"wrong": print}, **TOY)
    agent.save(tmp_path / "agent")
    agent.close()
    loaded = hyper_rl.load(tmp_path / "agent")
    assert loaded.predict(6)[0] in (1, 2)
    line = refused(lambda: loaded.learn(10))
    assert "env_kwargs: wrong" in line and "load(..., env=...)" in line
    assert main(["evaluate", str(tmp_path / "agent")]) == 2
    assert "env_kwargs: wrong" in capsys.readouterr().err
    with_it = hyper_rl.load(tmp_path / "agent", env=gymnasium.make("toy/Steps-v0"))
    assert with_it.learn(10).num_timesteps == 10
    with_it.close()


class Fancy(TabularQ):
    tie: Any = eqx.field(static=True, default=print)


def test_a_part_is_saved_with_numbers_in_any_form_or_refused(tmp_path: Path) -> None:
    agent = Hyper("Room", learner=TabularQ(step_size=np.float32(0.5)), **ROOM)  # type: ignore[arg-type]
    agent.save(tmp_path / "agent")
    assert hyper_rl.load(tmp_path / "agent").config.learner_options["step_size"] == 0.5
    assert "learner: Fancy.tie is <built-in function print>" in refused(lambda: Hyper("Room", learner=Fancy()))


def test_options_of_a_compiled_task_in_any_form() -> None:
    for subgoal in (np.array([16, 17]), [16, 17], (np.int64(16), 17)):
        assert Hyper("Room", env_kwargs={"subgoal": subgoal}).config.task_options == {"subgoal": (16, 17)}
    for wrong in ((17, 17.5), np.array([17, 17.5]), (17,), 17, "ab"):
        line = refused(lambda wrong=wrong: Hyper("Room", env_kwargs={"subgoal": wrong}))
        assert line.startswith("room.subgoal: got") and "a cell of the room (two whole numbers)" in line
    assert "env_kwargs: size of the JAX task Room" in refused(lambda: Hyper("Room", env_kwargs={"size": print}))


# Environments that fail

FAILS_AT: list[int] = []
"""How many more steps go well before one fails, whoever takes it; none: all do."""


class Failing(toy_envs.Steps):
    def step(self, action: Any) -> Any:
        if FAILS_AT:
            FAILS_AT[0] -= 1
            if FAILS_AT[0] < 0:
                FAILS_AT.clear()
                raise RuntimeError("gearbox on fire")
        return super().step(action)


def test_an_evaluation_that_failed_is_owed_by_the_agent_that_was_saved_too(tmp_path: Path) -> None:
    def fail(evaluation: Evaluation) -> None:
        FAILS_AT[:] = [100] if evaluation.step == 100 else []

    agent = Exploit(Failing, **TOY)
    assert "gearbox on fire" in refused(lambda: agent.learn(300, fail))
    assert [row["step"] for row in agent.curve] == [100] and agent.num_timesteps == 200
    agent.save(tmp_path / "agent")
    loaded = hyper_rl.load(tmp_path / "agent", env=Failing)
    agent.learn(100)
    loaded.learn(100)
    assert [row["step"] for row in loaded.curve] == [100, 200, 300]
    for one, other in zip(loaded.curve, agent.curve, strict=True):
        assert one == pytest.approx(other, rel=0, abs=0, nan_ok=True)
    agent.close()
    loaded.close()


# Budgets


def small(**asked: Any) -> Exploit:
    return Exploit("Pendulum-v1", learner=TD3(widths=(8,), batch_size=8), eval_every=100, eval_episodes=1, **asked)


@pytest.mark.parametrize("asked", [{}, {"warmup": 500, "capacity": 50}])
def test_saved_before_it_learned_the_first_budget_still_decides(asked: dict[str, Any], tmp_path: Path) -> None:
    small(**asked).save(tmp_path / "agent")
    # That it ends in warm-up is told at the first budget, not again when the agent learns on.
    ends_in_warmup = pytest.warns(UserWarning, match="warmup: 500 steps of it leave none of these 100")
    with ends_in_warmup if asked else nullcontext():
        loaded, never_saved = hyper_rl.load(tmp_path / "agent").learn(100), small(**asked).learn(100)
    assert loaded.config.to_json() == never_saved.config.to_json() and loaded.config.schedule_steps == 100
    assert loaded.config.warmup == asked.get("warmup", 10) and loaded.config.capacity == asked.get("capacity", 100)
    assert loaded.curve[-1] == pytest.approx(never_saved.curve[-1], rel=0, abs=0, nan_ok=True)
    loaded.save(tmp_path / "later")
    longer = hyper_rl.load(tmp_path / "later").learn(100)
    assert longer.config.schedule_steps == 100 and longer.config.capacity == asked.get("capacity", 400)
    for one in (loaded, never_saved, longer):
        one.close()
    never_saved.save(tmp_path / "policy", policy_only=True)
    assert "a policy alone" in refused(lambda: hyper_rl.load(tmp_path / "policy").learn(100))


def test_how_training_is_cut_into_calls_changes_nothing(tmp_path: Path) -> None:
    """Grown to 400 at once or on the way; that more room than is needed changes no draw, test_replay says."""
    small().learn(100).save(tmp_path / "agent")
    once, cut = hyper_rl.load(tmp_path / "agent").learn(300), hyper_rl.load(tmp_path / "agent")
    for more in (60, 1, 239):
        cut.learn(more)
    assert once.num_timesteps == cut.num_timesteps == 400 and cut.config.to_json() == once.config.to_json()
    assert same_policies(*(agent._running().state.learners for agent in (once, cut)))
    for agent in (once, cut):
        agent.close()


def test_a_replay_that_has_overwritten_something_does_not_grow(tmp_path: Path) -> None:
    """The rows added to it would be zeros, and would be learned from."""
    small().learn(100).save(tmp_path / "agent")
    assert main(["train", "--resume", str(tmp_path / "agent"), "--extend-steps", "150"]) == 0
    agent = hyper_rl.load(tmp_path / "agent").learn(20)
    replay = np.asarray(agent._running().state.replay)[0]
    assert replay.shape[0] == agent.config.capacity == 100 and (replay != 0).any(axis=1).all()
    program = build_program(dataclasses.replace(agent.config, capacity=400))
    assert "capacity: got 400, must be 100 as before: 170 transitions" in refused(
        lambda: agent._running().adopt(program, agent.num_timesteps)
    )
    agent.close()


def test_a_replay_grows_in_a_few_steps_as_far_as_memory_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size is compiled anew."""
    config, sizes = Asked().first_budget(small().config, 1_000), {1_000}
    for step in range(1_000, 1_200_000, 1_000):
        config = Asked().longer_budget(config, step, step + 1_000)
        sizes.add(config.capacity)
        assert config.capacity >= min(config.steps, 1_000_000)
    assert sorted(sizes) == [1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000]

    config = Asked().first_budget(config, 100_000)
    monkeypatch.setattr(memory, "available", lambda devices=1: 10_000_000)
    assert Asked().longer_budget(config, 100_000, 150_000).capacity == 150_000, "there is no room for 400,000"
    line = refused(lambda: Asked().longer_budget(config, 100_000, 400_000))
    assert line.startswith("capacity: 1 run(s) need") and "learn fewer steps" in line


# Another environment


def limited(steps: int) -> Any:
    return gymnasium.make("toy/Steps-v0", max_episode_steps=steps)


def test_the_episode_limit_is_that_of_the_environment_at_work(tmp_path: Path) -> None:
    agent = Hyper("toy/Steps-v0", eval_every=100, eval_episodes=2, p_start=1e-6, p_end=1e-6).learn(100)
    agent.save(tmp_path / "agent")
    compiled = _compiled_step.cache_info().misses
    agent.set_env(limited(4))
    agent.learn(100)
    assert _compiled_step.cache_info().misses == compiled, "the limit is a number of the program, not a part of it"
    judging: Any = agent._running()
    assert judging._judge._horizon == 4
    # With p this small L is all but uniform on {1..H}.
    assert agent.curve[0]["mean_length"] > 8 and agent.curve[1]["mean_length"] < 4
    assert agent.config.host is not None and agent.config.host["spec"]["horizon"] == 4 and agent.config.host["given"]
    agent.save(tmp_path / "moved")
    assert "give it with load" in refused(lambda: hyper_rl.load(tmp_path / "moved").learn(10))

    loaded = hyper_rl.load(tmp_path / "agent", env=limited(29)).learn(10)
    assert np.asarray(loaded._running().program.task.horizon).tolist() == [29]
    line = refused(lambda: hyper_rl.load(tmp_path / "agent", env=limited(1)).learn(10))
    assert line.startswith("env: toy/Steps-v0 ends its episodes after 1 steps, and the one in progress has ")
    fresh = Hyper("toy/Steps-v0", eval_every=100, eval_episodes=2)
    fresh.set_env(limited(4))
    fresh.learn(10)
    assert np.asarray(fresh._running().program.task.horizon).tolist() == [4], "also before its first step"
    for one in (agent, loaded, fresh):
        one.close()


def test_a_compiled_task_goes_on_as_it_is(agent: Hyper, tmp_path: Path) -> None:
    agent.save(tmp_path / "room")
    other = dataclasses.replace(choose_task("Room"), horizon=7)
    assert "Room ends its episodes after 7 steps" in refused(lambda: read_saved(tmp_path / "room").require_kind(other))
    loaded = hyper_rl.load(tmp_path / "room", env=gymnasium.make("hyper_rl/Room-v0"))
    assert "is a Gymnasium environment, and the agent's Room is a compiled task" in refused(lambda: loaded.learn(10))


# What is of the wrong kind

PART = "must be a name, or a configured object"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"learner": SAC}, f"learner: got {SAC!r}, {PART}"),
        ({"learner": 3}, f"learner: got 3, {PART}"),
        ({"learner": {"lr": 1e-3}}, f"learner: got {{'lr': 0.001}}, {PART}"),
        ({"learner": ICM()}, PART),
        ({"learner": ""}, "learner: unknown ''"),
        ({"bonus": ICM}, f"bonus: got {ICM!r}, {PART}"),
        ({"bonus": TD3()}, PART),
        ({"eval_env": 3}, "eval_env: got 3, must be a function"),
        ({"eval_env": lambda: None}, "must be left out unless env is an environment object"),
        ({"env_kwargs": 3}, "env_kwargs: got 3, must be a dictionary"),
        ({"beta": "x"}, "beta: got 'x', must be a number"),
        ({"beta": [1, 2]}, "beta: got [1, 2], must be a number"),
        ({"beta": None}, "beta: got None"),
        ({"beta": float("nan")}, "beta: got nan"),
        ({"seed": None}, "seed: got None, must be a whole number between 0 and 4294967295"),
        ({"seed": "a"}, "seed: got 'a', must be a whole number"),
        ({"seed": 1.5}, "seed: got 1.5, must be a whole number"),
        ({"seed": -1}, "seed: got -1, must be a whole number"),
        ({"bonus_scale": "x"}, "bonus_scale: unknown 'x'"),
        ({"bonus_scale": 3}, "bonus_scale: got 3, must be one of"),
        ({"reward_scale": "x"}, "reward_scale: unknown 'x'"),
        ({"lengths": 3}, "lengths: got 3, must be one of bounded, plain"),
        ({"preset": 3}, "preset: got 3, must be one of"),
        ({"success": 3}, "success: got 3, must be one of"),
        ({"p_start": "x"}, "p_start: got 'x', must be a number"),
        ({"p_end": [1]}, "p_end: got [1], must be a probability"),
        ({"normalise_observations": "no"}, "normalise_observations: got 'no'"),
        (
            {"gamma": 0.9},
            "gamma: belongs to the learner (TD3, SAC, DQN, TabularQ",
        ),
        ({"lr": 0.9}, "learner=TD3(lr=0.9)"),
        ({"models": 3}, "bonus=Disagreement(models=3)"),
        ({"colour": 3}, "there are beta, bonus, bonus_scale, capacity, env, env_kwargs, eval_env, eval_episodes"),
        (
            {"colour": 3},
            "p_end, p_start, preset, reward_scale, seed, success, train_every, warmup",
        ),
    ],
)
def test_the_constructor_refuses_what_is_of_the_wrong_kind(given: dict[str, Any], says: str) -> None:
    assert says in refused(lambda: Hyper("toy/Steps-v0", horizon=12, **given))


def test_a_number_is_a_number_in_any_form(tmp_path: Path) -> None:
    numbers: list[Any] = [np.float32(0.5), np.int64(3), np.int64(20)]
    half, three, twenty = numbers
    agent = Hyper("Room", beta=half, seed=three, **ROOM)
    agent.learn(twenty).learn(2e1)
    agent.save(tmp_path / "agent")
    assert hyper_rl.load(tmp_path / "agent").config.seeds == (3,) and agent.config.betas == (0.5,)
    assert agent.config.capacity == 1, "a table needs no replay, however long it learns"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("x",), "total_timesteps: got 'x', must be a number"),
        ((None,), "total_timesteps: got None"),
        (("100",), "total_timesteps: got '100'"),
        ((True,), "total_timesteps: got True"),
        ((float("nan"),), "total_timesteps: got nan"),
        ((10.5,), "total_timesteps: got 10.5, must be a whole number >= 1"),
        ((-5,), "total_timesteps: got -5"),
        ((3e9,), "steps: got 3000000500, must be below 2^31"),
        ((10, 3), "callback: got 3, must be a function that takes an Evaluation"),
        ((10, "abc"), "callback: got 'abc'"),
        ((10, [print, 3]), "callback: got [<built-in function print>, 3]"),
        ((10, None, False, "x"), "log_interval: got 'x'"),
    ],
)
def test_learn_refuses_what_is_of_the_wrong_kind(agent: Hyper, arguments: Any, says: str) -> None:
    before = agent.num_timesteps, agent.config
    assert says in refused(lambda: agent.learn(*arguments))
    assert (agent.num_timesteps, agent.config) == before


def test_a_closed_agent_says_so(tmp_path: Path) -> None:
    agent = Exploit("toy/Steps-v0", **TOY).learn(20)
    agent.close()
    assert "learn: the agent was closed" in refused(lambda: agent.learn(20))
    agent.predict(5)
    agent.save(tmp_path / "agent")
    assert hyper_rl.load(tmp_path / "agent").learn(20).num_timesteps == 40
    assert "eval_env: got 3" in refused(lambda: agent.set_env(gymnasium.make("toy/Steps-v0"), eval_env=3))
    agent.set_env("toy/Steps-v0")
    assert agent.learn(20).num_timesteps == 40
    agent.close()
    assert "eval_env" in refused(lambda: hyper_rl.load(tmp_path / "agent", eval_env=lambda: None))
