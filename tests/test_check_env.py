"""`hyper-rl check-env` and `--env.key value`: what is found out about environments whose traits are known."""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from hyper_rl.cli.check_env import run_check_env
from hyper_rl.cli.env_arguments import read_value, split_env_arguments, write_env_arguments
from hyper_rl.envs.check_env import check_environment
from hyper_rl.envs.env_trial import reports_success
from hyper_rl.envs.finding import Finding
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.observation_reader import Unfit, read_observations
from hyper_rl.errors import UserError
from toy_envs import LIMIT, Steps, Still, Walk


def findings(source: EnvSource, steps: int = 300) -> dict[str, Finding]:
    return {finding.topic: finding for finding in check_environment(source, steps)[0]}


def of(make: Any, steps: int = 300, **options: Any) -> dict[str, Finding]:
    return findings(EnvSource("toy", factory=make, **{"horizon": LIMIT, **options}), steps)


def problems(found: dict[str, Finding]) -> list[str]:
    return [topic for topic, finding in found.items() if finding.status == "problem"]


# What is found


def test_whether_success_is_reported_is_known_from_an_episode() -> None:
    assert reports_success(EnvSource("toy/Walk-v0")) and not reports_success(EnvSource("toy/Nested-v0"))
    assert reports_success(EnvSource("toy/Nested-v0", success="reward"))
    assert reports_success(EnvSource("toy/Walk-v0", {"fault": "crash"})), "nobody can tell"


def test_a_sound_environment_has_no_problem() -> None:
    found = findings(EnvSource("toy/Walk-v0"), 1000)
    assert problems(found) == []
    assert found["Gymnasium"].status == "ok"
    assert found["episode limit"].data == {"horizon": LIMIT}
    assert found["reward"].data["kind"] == "sparse" and 0 < found["reward"].data["nonzero"]["random"] < 0.1
    assert found["reward scale"].data["rms"] == 1.0
    assert found["success"].status == "ok" and found["success"].data["reported"]
    assert found["endings"].data["terminated"] > 0
    assert found["deterministic"].data == {"deterministic": True}
    assert found["memory"].data["replay_bytes"] == (2 * 3 + 2 + 2) * 4 * 1_000_000


@pytest.mark.parametrize(
    ("env_id", "again"),
    [("toy/Moody-v0", "a second environment"), ("toy/Ageing-v0", "the same environment after other episodes")],
)
def test_one_that_does_not_repeat_itself_is_found_out(env_id: str, again: str) -> None:
    found = findings(EnvSource(env_id))
    assert problems(found) == []
    assert found["deterministic"].status == "note" and found["deterministic"].data["again"] == again
    assert "cannot be resumed exactly" in found["deterministic"].says


def test_episode_limits() -> None:
    endless = findings(EnvSource("toy/Endless-v0"))
    assert problems(endless) == ["episode limit"] and "--horizon" in endless["episode limit"].says
    assert "deterministic" in endless, "the rest is looked at all the same"
    assert problems(findings(EnvSource("toy/Endless-v0", horizon=20))) == []
    too_long = findings(EnvSource("toy/Walk-v0", horizon=LIMIT + 1))
    assert problems(too_long) == ["episode limit"] and "after 30 itself" in too_long["episode limit"].says


def test_spaces_that_cannot_be_used() -> None:
    found = findings(EnvSource("toy/Unbounded-v0"))
    assert problems(found) == ["spaces"] and "dimension 0 has upper bound inf" in found["spaces"].says
    assert "Gymnasium" in found


@pytest.mark.parametrize(("fault", "says"), [("nan", "step 5: observation[2] is nan"), ("crash", "the motor fell off")])
def test_a_fault_is_a_problem(fault: str, says: str) -> None:
    found = findings(EnvSource("toy/Walk-v0", {"fault": fault, "at": 5}))
    assert problems(found) == ["steps"] and says in found["steps"].says


def test_a_fault_at_the_first_reset() -> None:
    assert problems(findings(EnvSource("toy/Walk-v0", {"fault": "shape", "at": 0}))) == ["steps"]
    assert problems(findings(EnvSource("toy/OneWay-v0"))) == ["steps"]


class Paying(Still):
    """Pays what it is told to, and shows a vector of known scales."""

    def __init__(self, rewards: Any, scales: Any = (1.0, 1.0), offsets: Any = (0.0, 0.0)) -> None:
        super().__init__(gymnasium.spaces.Box(-np.inf, np.inf, (2,)))
        self._rewards, self._scales, self._offsets = rewards, np.asarray(scales), np.asarray(offsets)

    def reset(self, **keywords: Any) -> Any:
        seen, info = super().reset(**keywords)
        return (seen * self._scales + self._offsets).astype(np.float32), info

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        paid = float(self.np_random.choice(self._rewards))
        return (seen * self._scales + self._offsets).astype(np.float32), paid, *rest


@pytest.mark.parametrize(
    ("rewards", "kind", "scale"),
    [
        ([0.0], "none seen", "note"),
        ([-1.0], "constant", "ok"),
        ([0.5, 1.0], "dense", "ok"),
        ([0.0] * 50 + [1.0], "sparse", "ok"),
        ([500.0, -800.0], "dense", "note"),
        ([1e-4, 2e-4], "dense", "note"),
    ],
)
def test_rewards(rewards: list[float], kind: str, scale: str) -> None:
    found = of(lambda: Paying(rewards), steps=1000)
    assert found["reward"].data["kind"] == kind
    assert found["reward scale"].status == scale


@pytest.mark.parametrize(
    ("scales", "offsets", "says"),
    [
        ((1.0, 0.5), (0.0, 0.0), "fair size"),
        ((1.0, 100.0), (0.0, 0.0), "dimension 1 spreads by"),
        ((1.0, 1.0), (0.0, 300.0), "dimension 1 is 300"),
        ((1.0, 0.0), (0.0, 3.0), "never changed: dimension 1"),
        ((0.01, 0.02), (0.0, 0.0), "dimension 0 spreads by"),
        ((0.0, 0.0), (0.0, 0.0), "nothing ever changed"),
    ],
)
def test_observation_scales(scales: Any, offsets: Any, says: str) -> None:
    found = of(lambda: Paying([1.0], scales, offsets))["observations"]
    assert says in found.says
    assert (found.status == "ok") == (says == "fair size")
    assert ("--normalise-observations" in found.says) == says.startswith("dimension")
    assert len(found.data["dimensions"]) == 2


class Clock(Still):
    """Shows the time as seconds since long ago, in float64; and what else it is told to."""

    def __init__(self, *others: float, offset: float = 1e9) -> None:
        super().__init__(gymnasium.spaces.Box(-np.inf, np.inf, (1 + len(others),), np.float64))
        self._others, self._offset, self._time = others, offset, 0.0

    def reset(self, **keywords: Any) -> Any:
        super().reset(**keywords)
        self._time = 0.0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self._time += 1.0
        return self._shown(), 1.0, False, False, {}

    def _shown(self) -> Any:
        return np.array([self._offset + self._time, *(self._time * other for other in self._others)])


def test_what_float32_cannot_tell_apart_is_said() -> None:
    """Its steps are 64 at 1e9: to normalise what is left of 30 seconds there would bring nothing back."""
    alone, beside = of(Clock)["observations"], of(lambda: Clock(0.1))["observations"]
    for found in (alone, beside):
        assert "around 1e+09" in found.says and "steps of 64: subtract the offset" in found.says
        assert "--normalise-observations" not in found.says
    assert (alone.status, beside.status) == ("problem", "note")
    assert "float32" not in of(lambda: Clock(offset=1e3))["observations"].says


def test_what_float32_cannot_hold_is_refused_by_name() -> None:
    assert "step 1: observation[1] is 1e+300, beyond the 3.4e+38" in of(lambda: Clock(1e300))["steps"].says
    parts = gymnasium.spaces.Dict(far=gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64))
    with pytest.raises(Unfit, match=r"observation\['far'\]\[0\] is -1e\+39, beyond"):
        read_observations(parts).read({"far": np.array([-1e39])})


def test_pictures_in_all_but_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of floats they can be trained on, as vectors, as far as there is memory."""
    monkeypatch.setattr("hyper_rl.training.memory.available", lambda: 2**30)
    found = of(lambda: Still(gymnasium.spaces.Box(0.0, 1.0, (16, 16, 1))), steps=40)
    assert "16x16x1 numbers are taken as one flat vector" in found["shape"].says
    assert problems(found) == ["memory"] and "1,024 MiB is free: at most --capacity " in found["memory"].says
    assert "shape" not in findings(EnvSource("toy/Walk-v0"), 40)


def test_success_and_discrete_spaces() -> None:
    found = of(Steps, steps=500)
    assert problems(found) == [] and "observations" not in found
    assert found["memory"].data["replay_bytes"] == (2 + 1 + 2) * 4 * 1_000_000
    silent = of(lambda: Paying([1.0]))
    assert silent["success"].status == "note" and "--success" in silent["success"].says
    assert of(lambda: Paying([1.0]), success="reward")["success"].data["successes"] == 600


def test_gymnasiums_objections_are_told_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    class Loud(Walk):
        def reset(self, **keywords: Any) -> Any:
            print("noise")
            print("noise", file=sys.stderr)
            seen, info = super().reset(**keywords)
            return seen.astype(np.float64), info  # not the declared dtype

    found = of(Loud, steps=2)
    assert problems(found) == [] and found["Gymnasium"].status == "note"
    assert "not within the observation space" in found["Gymnasium"].says
    said = capsys.readouterr()
    resets = 2 + 3 * 1  # ours: two trials, and three recordings of two steps
    assert said.out.count("noise") == resets, "Gymnasium's checker resets many times more"


# The command


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["toy/Walk-v0", "--env-module", "toy_envs", "--steps", "200", "--env.fault", "None", "--env.at=4"]
    assert run_check_env(words) == 0
    said = capsys.readouterr()
    ready = "Ready: hyper-rl train toy/Walk-v0 --env-module toy_envs --env.fault None --env.at 4\n"
    assert ready in said.out and "td3" in said.out and said.err == ""
    assert run_check_env([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trainable"] and document["env"] == "toy/Walk-v0"
    assert {"spaces", "reward", "learner", "memory"} <= {finding["topic"] for finding in document["findings"]}


@pytest.mark.parametrize(
    ("words", "train"),
    [
        (
            "toy/Walk-v0 --env-module toy_envs --horizon 20 --success reward",
            "toy/Walk-v0 --env-module toy_envs --success reward --horizon 20",
        ),
        ("CartPole-v1 --success terminated", "CartPole-v1 --success terminated"),
        ("Room", "Room"),
        ("hyper_rl/Room-v0", "Room --backend gymnasium"),
        ("Room --success reward --horizon 9", "Room --backend gymnasium --success reward --horizon 9"),
    ],
)
def test_ready_repeats_what_was_said_of_the_environment(
    words: str, train: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_check_env([*words.split(), "--steps", "20"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == f"Ready: hyper-rl train {train}"


def test_the_command_says_1_where_training_is_impossible(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_check_env(["toy/Endless-v0", "--env-module", "toy_envs", "--steps", "50"]) == 1
    assert "Cannot be trained on" in capsys.readouterr().out
    assert run_check_env(["toy/Unbounded-v0", "--env-module", "toy_envs", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["trainable"] is False


def test_environment_arguments_are_written_as_they_are_read() -> None:
    given = {"a": 2, "b": "two words", "c": "2", "d": None, "e": (1, 2), "f": "--x", "g": True, "h": -1.5}
    assert split_env_arguments(write_env_arguments(given)) == ([], given)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("Pendulm-v1", "did you mean Pendulum-v1"),
        ("toy/Walk-v0 --env-module no_such_thing", "env_module"),
        ("toy/Walk-v0 --env-module toy_envs --env.colour red", "colour"),
        ("toy/Walk-v0 --env-module toy_envs --steps 0", "steps: got 0"),
        ("toy/Walk-v0 --env-module toy_envs --horizon 0", "horizon: got 0"),
        ("toy/Walk-v0 --env.at", "env.at: a value is missing"),
    ],
)
def test_the_command_refuses(words: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        run_check_env(words.split())
    assert says in str(error.value) and "\n" not in str(error.value)


# --env.key value


def test_keyword_arguments_are_taken_out() -> None:
    words = "Ant-v5 --steps 10 --env.healthy-reward 0.5 --env.shape=(1,2) --env.name= --seed 3 --env.low -1"
    rest, found = split_env_arguments(words.split())
    assert rest == ["Ant-v5", "--steps", "10", "--seed", "3"]
    assert found == {"healthy_reward": 0.5, "shape": (1, 2), "name": "", "low": -1}
    assert split_env_arguments(["Ant-v5", "--env-module", "mine"]) == (["Ant-v5", "--env-module", "mine"], {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2.5e-3", -2.5e-3),
        ("True", True),
        ("false", False),
        ("None", None),
        ("(1, 2)", (1, 2)),
        ("[1, 'a']", [1, "a"]),
        ("{'a': 1}", {"a": 1}),
        ("'3'", "3"),
        ("umaze", "umaze"),
        ("a=b", "a=b"),
        ("007", "007"),
        ("__import__('os')", "__import__('os')"),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert read_value(text) == value and type(read_value(text)) is type(value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--env.key", "env.key: a value is missing"),
        ("--env.key --steps 3", "env.key: a value is missing"),
        ("--env. 3", "must be --env.KEY VALUE"),
        ("--env.2x 3", "must be --env.KEY VALUE"),
        ("--env.a 1 --env.a 2", "env.a: given twice, 1 and 2"),
    ],
)
def test_keyword_arguments_that_are_none(words: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        split_env_arguments(words.split())
    assert says in str(error.value)
