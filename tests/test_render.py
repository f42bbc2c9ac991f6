"""Episodes made visible: the paths are those that were played, the files are whole, the words say what to do."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.cli.main import main
from hyper_rl.cli.render import RenderOptions, run_render
from hyper_rl.envs.maze import make_maze
from hyper_rl.envs.pendulum import Pendulum
from hyper_rl.envs.room import RIGHT, UP, Room
from hyper_rl.errors import UserError
from hyper_rl.learners.tabular_q import TabularQ, TabularQState
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.policies import make_policies
from hyper_rl.report.render import pace, sheet, top_down
from hyper_rl.report.render.paths import Walk, judged_walks, training_walks
from hyper_rl.report.render.scene import scene_of, trails_of
from hyper_rl.report.render.stored_learners import read_learners
from hyper_rl.threefry import make_key
from hyper_rl.training.evaluation import judge_episodes
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.types import stack_runs

pytestmark = pytest.mark.xdist_group("render")  # one process, so that each program compiles once

SEED = 1_000_000
WORDS = "Room --beta 1 10 --steps 2500 --eval-every 2500 --eval-episodes 2 --preset paper"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("render") / "run"
    assert main(["train", *WORDS.split(), "--out", str(folder)]) == 0
    return folder


def table(action: int) -> jax.Array:
    """Action values of the room that prefer one action everywhere."""
    return jnp.zeros((900, 4), float).at[:, action].set(1.0)


def cells(walk: Walk) -> list[int]:
    return [int(cell) for cell in walk.states]


# Paths


def compare_with_evaluation(task: Any, learner: Any, policy: Any, episodes: int) -> list[Walk]:
    """The walks, after checking that they are the episodes `hyper-rl evaluate` would count."""
    walks = judged_walks(task, learner, policy, SEED, episodes)
    one = [stack_runs([part]) for part in (task, learner, policy)]
    judge = jax.jit(partial(judge_episodes, episodes=episodes))
    trials, _ = judge(*one, jnp.stack([make_key(SEED)]))
    assert [walk.steps for walk in walks] == trials.steps[0].tolist()
    assert [walk.success for walk in walks] == trials.success[0].tolist()
    assert [walk.total for walk in walks] == pytest.approx(trials.total[0].tolist())
    return walks


def test_judged_walks_are_the_episodes_that_evaluate_counts_in_the_room() -> None:
    q = jax.random.uniform(jax.random.key(3), (900, 4), dtype=float)  # leads into circles, but not only
    policy = TabularQ().policy(TabularQState(q.at[:, 2:].add(0.3), None))
    walks = compare_with_evaluation(Room(), TabularQ(), policy, 3)
    for walk in walks:
        assert len(walk.states) == walk.steps + 1
        assert not walk.explorer.any()
    fewer = judged_walks(Room(), TabularQ(), policy, SEED, 2)
    assert [cells(walk) for walk in fewer] == [cells(walk) for walk in walks[:2]]


def test_judged_walks_are_the_episodes_that_evaluate_counts_in_a_maze() -> None:
    task, learner = make_maze("MediumMaze-Easy", horizon=40), TD3(widths=(8,))
    policy = learner.policy(learner.init(jax.random.key(0), task.spec, jnp.zeros((), float)))
    walks = compare_with_evaluation(task, learner, policy, 2)
    for walk in walks:
        x, y = walk.states.ball.x, walk.states.ball.y
        assert x.shape == y.shape == (41,)
        assert abs(x[0] - -2.5) <= 0.25 and abs(y[0] - 2.5) <= 0.25  # the start cell
        assert 0 < np.hypot(np.diff(x), np.diff(y)).max() < 0.2  # every step is there, none jumps
        assert not walk.terminated
    assert walks[0].states.ball.x[0] != walks[1].states.ball.x[0]


def test_in_a_training_episode_the_task_policy_repositions_and_the_explorer_takes_over() -> None:
    learners = TabularQState(jnp.stack([table(RIGHT), table(UP)]), None)
    walks = training_walks(Room(), TabularQ(), make_policies("hyper", 0.2, 0.2), learners, SEED, 8)
    assert len({walk.length for walk in walks}) > 3
    for walk in walks:
        assert walk.length is not None
        repositioning = walk.length - 1
        assert walk.explorer.tolist() == [step >= repositioning for step in range(100)]
        column, row = min(15 + repositioning, 29), 15
        assert cells(walk)[repositioning] == row * 30 + column
        assert cells(walk)[-1] == column  # up to the first row, and then against the wall
    again = training_walks(Room(), TabularQ(), make_policies("hyper", 0.2, 0.2), learners, SEED, 8)
    assert [walk.length for walk in again] == [walk.length for walk in walks]


@pytest.mark.parametrize(("method", "expected"), [("exploit", False), ("curiosity", True), ("decouple", True)])
def test_without_repositioning_one_policy_acts_all_along(method: str, expected: bool) -> None:
    policies = make_policies(method, 0.5, 0.5)
    q = {"task": table(RIGHT), "explorer": table(UP)}
    learners = TabularQState(jnp.stack([q[role] for role in policies.roles]), None)
    [walk] = training_walks(Room(), TabularQ(), policies, learners, SEED, 1)
    assert (walk.explorer == expected).all()
    assert cells(walk)[-1] == (15 if expected else 15 * 30 + 29)


def test_training_walks_have_the_noise_of_training() -> None:
    task, learner = Pendulum(horizon=20), TD3(widths=(8,), action_noise=0.5)
    state = learner.init(jax.random.key(0), task.spec, jnp.zeros((), float))
    alone = jax.tree.map(lambda leaf: leaf[None], state)
    [noisy] = training_walks(task, learner, make_policies("exploit", 1, 1), alone, SEED, 1)
    [judged] = judged_walks(task, learner, learner.policy(state), SEED, 1)
    assert noisy.states.angle[0] == judged.states.angle[0]
    assert np.abs(noisy.states.angle - judged.states.angle).max() > 1e-2


# The explorer, out of a checkpoint


def test_the_learners_of_a_run_come_out_of_its_checkpoint(trained: Path) -> None:
    from safetensors.numpy import load_file

    folder, config = RunFolder.open(trained)
    [state] = trained.glob("checkpoint/step-*/state.safetensors")
    stored = load_file(state)[".learners.q"]
    for run in (0, 1):
        learners, step = read_learners(folder, config, run)
        assert step == 2500
        np.testing.assert_array_equal(learners.q, stored[run])
    assert not np.array_equal(stored[0], stored[1])


def test_without_a_whole_checkpoint_there_are_no_training_episodes(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    [state] = copy.glob("checkpoint/step-*/state.safetensors")
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match=r"no checkpoint can be used: step-\d+: .*check sum differs"):
        run_render(RenderOptions(copy, training=True))
    shutil.rmtree(copy / "checkpoint")
    with pytest.raises(UserError, match=r"has no checkpoint .*the explorer is stored only there"):
        run_render(RenderOptions(copy, training=True))
    run_render(RenderOptions(copy, episodes=1, out=tmp_path / "still.png"))  # the judged policy has a file of its own


# The picture


def test_the_map_of_a_maze_and_the_places_on_it() -> None:
    task = make_maze("LargeMaze-Hard")
    scene = scene_of(task)
    assert scene.walls.shape == (9, 12) and scene.walls[0, 0] and not scene.walls[1, 1]
    for seed in range(5):
        start = jax.tree.map(lambda leaf: np.asarray(leaf)[None], task.reset(jax.random.key(seed)))
        [trail] = trails_of(task, [Walk(start, np.zeros(0, bool), 0.0, False, False, None)])
        assert np.abs(trail.points[0] - (1.5, 1.5)).max() <= 0.25 + 1e-6  # x to the right, y downwards
        assert np.abs(np.array(trail.goal) - (10.5, 7.5)).max() <= 0.25 + 1e-6


def test_a_task_without_a_map_is_refused() -> None:
    with pytest.raises(UserError, match="task: Pendulum has no map to draw"):
        scene_of(Pendulum())


CAPTIONS = sheet.Captions("Room, hyper, β = 1, seed 0", "training", "repositioning (task policy)", "exploring")


def room_walk(points: list[tuple[int, int]], explorer: list[bool], **told: Any) -> Walk:
    states = np.array([row * 30 + column for row, column in points])
    return Walk(
        states, np.array(explorer), **{"total": 0.0, "success": False, "terminated": False, "length": 3, **told}
    )


WALKS = [
    room_walk([(15, 15), (15, 16), (15, 17), (14, 17), (13, 17)], [False, False, True, True]),
    room_walk([(15, 15), (16, 15), (17, 15), (17, 14)], [False, False, True]),
]


def share(frame: np.ndarray, colour: sheet.Colour) -> float:
    return float((frame == np.array(colour, np.uint8)).all(axis=2).mean())


def test_a_still_shows_all_paths_by_who_acted() -> None:
    frame = top_down.still(scene_of(Room()), trails_of(Room(), WALKS), CAPTIONS, 481)
    assert frame.dtype == np.uint8 and frame.shape[1] == 482 and frame.shape[0] % 2 == 0
    for colour in (sheet.TASK_POLICY, sheet.EXPLORER, sheet.GOAL, sheet.WALL, sheet.FLOOR, sheet.PAPER):
        assert share(frame, colour) > 1e-4
    nobody = sheet.Captions("Room", "judged", "judged policy", None)
    judged = [room_walk([(15, 15), (15, 16)], [False], length=None)]
    assert share(top_down.still(scene_of(Room()), trails_of(Room(), judged), nobody, 480), sheet.EXPLORER) == 0


def test_an_animation_adds_a_step_at_a_time_and_holds_at_the_ends() -> None:
    frames = list(top_down.animate(scene_of(Room()), trails_of(Room(), WALKS), CAPTIONS, 300))
    per_episode = [pace.HOLD_FIRST + walk.steps - 1 + pace.HOLD_LAST for walk in WALKS]
    assert len(frames) == sum(per_episode)
    first = frames[: per_episode[0]]
    assert first[0] is first[pace.HOLD_FIRST - 1] and first[-1] is first[-pace.HOLD_LAST]
    drawn = [share(frame, sheet.TASK_POLICY) + share(frame, sheet.EXPLORER) for frame in first]
    assert drawn == sorted(drawn) and drawn[-1] > drawn[0]
    # The second episode begins with the first one faded, not gone.
    faded = sheet.blend(sheet.EXPLORER, sheet.FLOOR, top_down.FADED)
    assert share(frames[per_episode[0]], faded) > 0 and share(first[-1], faded) == 0


def test_a_long_episode_is_shown_in_a_bounded_number_of_frames() -> None:
    steps = 1000
    walk = room_walk([(15, 15 + step % 2) for step in range(steps + 1)], [False] * steps)
    frames = list(top_down.animate(scene_of(Room()), trails_of(Room(), [walk]), CAPTIONS, 240))
    assert len(frames) <= pace.LONGEST_EPISODE + pace.HOLD_FIRST + pace.HOLD_LAST


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"success": True, "terminated": True}, "goal reached in 2 steps"),
        ({"terminated": True, "total": 0.1}, "ended after 2 steps, return 0.1"),
        ({}, "goal not reached in 2 steps"),
    ],
)
def test_what_became_of_an_episode(told: dict[str, Any], words: str) -> None:
    assert top_down.outcome(room_walk([(15, 15), (15, 16), (15, 17)], [False, False], **told)) == words


# The command


def test_render_writes_beside_the_agent_and_tells_what_it_shows(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = RenderOptions(trained, run=1, episodes=2, training=True, size=240)
    assert run_render(options) == 0
    out = trained / "runs" / "1" / "training.gif"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].split(" (")[0] for line in lines[:2]] == [
        "training episode 1 of 2",
        "training episode 2 of 2",
    ]
    assert lines[2].startswith(f"wrote {out} (")
    assert 0 < out.stat().st_size < 2_000_000
    with pytest.raises(UserError, match="exists already"):
        run_render(options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"run": 2}, "run: got 2, must be between 0 and 1"),
        ({"episodes": 0}, "episodes: got 0"),
        ({"size": 10}, "size: got 10, must be between"),
        ({"p": 0.1}, "p: got 0.1, must be left out without --training"),
        ({"p": 0.0, "training": True}, r"p: got 0.0, must be a probability in \(0, 1\]"),
        ({"out": Path("x.png"), "fps": 10}, r"fps: got 10, must be left out for a \.png"),
        ({"folder": Path("nowhere")}, "run: nowhere is not a run folder"),
    ],
)
def test_bad_options_are_refused_by_name(change: dict[str, Any], said: str, trained: Path, tmp_path: Path) -> None:
    given = {"folder": trained, "out": tmp_path / "x.gif", **change}
    with pytest.raises(UserError, match=said):
        run_render(RenderOptions(**given))
    assert list(tmp_path.iterdir()) == []


def test_without_pillow_the_extra_is_named(trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r"pip install 'hyper-rl\[plots\]'"):
        run_render(RenderOptions(trained, out=tmp_path / "x.gif"))
