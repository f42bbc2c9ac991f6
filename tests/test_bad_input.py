"""Bad input: one line on standard error that names field, value and what is allowed; nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
import tyro

from hyper_rl.cli.evaluate import EvaluateOptions
from hyper_rl.cli.linear import LinearArgs
from hyper_rl.cli.main import main
from hyper_rl.cli.parsing import options_of
from hyper_rl.cli.render import RenderOptions
from hyper_rl.cli.study import StudyOptions
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import TrainOptions, resolve
from hyper_rl.config import Config, build_program
from hyper_rl.training.program import Program
from hyper_rl.training.run_folder import RunFolder

pytestmark = pytest.mark.xdist_group("bad-input")  # one process, so that the run folder is made once

METHODS = "known: curiosity, decouple, exploit, hyper"
TASKS = "MediumMaze-Easy, MediumMaze-Medium, Pendulum, Room"
CHANCE = "must be a probability in (0, 1]"

REFUSED: list[tuple[str, tuple[str, ...]]] = [
    # unknown names, with the nearest ones
    ("trian Room", ("command", "'trian'", "did you mean train?")),
    ("train Rooom", ("task", "'Rooom'", "did you mean Room?", TASKS)),
    ("train mediummaze-easy", ("task", "did you mean MediumMaze-Easy or MediumMaze-Medium", TASKS)),
    ("train Zzz", ("task", "'Zzz'", TASKS)),
    ("train", ("task", "missing", "hyper-rl tasks", "--resume")),
    ("train Room --method hypr", ("method", "'hypr'", "did you mean hyper?", METHODS)),
    ("train Room --learner tabular", ("learner", "'tabular'", "did you mean tabular_q?", "dqn, sac, tabular_q, td3")),
    ("train Room --bonus count", ("bonus", "'count'", "did you mean counts?", "known: counts, disagreement, icm, rnd")),
    ("train Room --preset papr", ("preset", "'papr'", "did you mean paper?", "known: minigrid, paper, robust")),
    # beta
    ("train Room --beta -1", ("beta", "-1", "a finite number >= 0")),
    ("train Room --beta=-1", ("beta", "-1", "a finite number >= 0")),
    ("train Room --beta 1 -0.5", ("beta", "-0.5", "a finite number >= 0")),
    ("train Room --beta nan", ("beta", "nan", "a finite number >= 0")),
    ("train Room --beta 1 nan", ("beta", "nan", "a finite number >= 0")),
    ("train Room --beta inf", ("beta", "inf", "a finite number >= 0")),
    ("train Room --beta", ("beta", "[]", "at least one value")),
    ("train Room --beta 0.1 0.1", ("beta", "[0.1, 0.1]", "a list without repetitions")),
    # counts
    ("train Room --steps 0", ("steps", "0", "a whole number >= 1")),
    ("train Room --steps -5", ("steps", "-5", "a whole number >= 1")),
    ("train Room --steps 3000000000", ("steps", "3000000000", "below 2^31")),
    ("train Room --seeds 0", ("seeds", "0", "a whole number >= 1")),
    ("train Room --seeds -2", ("seeds", "-2", "a whole number >= 1")),
    ("train Room --seed -1", ("seed", "-1", "between 0 and 4294967295")),
    ("train Room --warmup -1", ("warmup", "-1", "a whole number >= 0")),
    ("train Room --warmup 500 --steps 500", ("warmup", "500", "below the 500 steps")),
    ("train Room --eval-every 0", ("eval_every", "0", "a whole number >= 1")),
    ("train Room --eval-episodes 0", ("eval_episodes", "0", "a whole number >= 1")),
    ("train Room --horizon 0", ("horizon", "0", "a whole number >= 1")),
    ("train Room --keep 0", ("keep", "0", "a whole number >= 1")),
    ("train Room --capacity 0", ("capacity", "0", "a whole number >= 1")),
    ("train Room --checkpoint-seconds 0", ("checkpoint_seconds", "0", "a number > 0")),
    ("train Room --checkpoint-seconds nan", ("checkpoint_seconds", "nan", "a number > 0")),
    # p
    *((f"train Room --p-start {p}", ("p_start", p, CHANCE)) for p in ("0", "-0.1", "1.5", "nan", "inf")),
    *((f"train Room --p-end {p}", ("p_end", p, CHANCE)) for p in ("0", "-0.1", "1.5", "nan", "inf", "2/H")),
    # what does not fit
    ("train Room --learner td3", ("learner", "'td3'", "Room has a finite set of them", "'tabular_q'")),
    ("train MediumMaze-Easy --learner tabular_q", ("learner", "'tabular_q'", "MediumMaze-Easy", "use 'td3'")),
    ("train MediumMaze-Easy --bonus counts", ("bonus", "'counts'", "MediumMaze-Easy", "use 'disagreement'")),
    ("train Room --method exploit --bonus counts", ("bonus", "'counts'", "must be left out", "'exploit'")),
    ("train MediumMaze-Easy --capacity 2000000000 --seeds 20", ("capacity", "1.7 TiB", "is free", "lower --capacity")),
    # options of a part that is not there
    ("train Room --td3.lr 0.1", ("td3.lr", "0.1", "takes no part", "learner tabular_q")),
    ("train MediumMaze-Easy --tabular-q.step-size 0.1", ("tabular_q.step_size", "0.1", "takes no part")),
    ("train MediumMaze-Easy --room.horizon 20", ("room.horizon", "20", "takes no part", "task MediumMaze-Easy")),
    ("train Room --disagreement.models 7", ("disagreement.models", "7", "takes no part", "bonus counts")),
    ("train MediumMaze-Easy --method exploit --disagreement.models 7", ("disagreement.models", "7", "bonus none")),
    # resuming
    ("train --resume nowhere", ("nowhere", "not a run folder", "config.json")),
    ("train --resume .", ("not a run folder", "config.json")),
    ("train Room --extend-steps 10", ("extend_steps", "--resume")),
    # evaluating
    ("evaluate nowhere", ("nowhere", "not a run folder")),
    ("evaluate nowhere --episodes 0", ("episodes", "0", "a whole number >= 1")),
    # values that a group of options refuses itself
    ("train Room --room.subgoal 15 15", ("room.subgoal", "(15, 15)", "neither the start nor the goal")),
    ("train Room --room.subgoal 30 0", ("room.subgoal", "(30, 0)", "a cell of the room")),
    ("train Room --tabular-q.gamma 1", ("tabular_q.gamma", "1.0", "in [0, 1)")),
    ("train MediumMaze-Easy --td3.widths 0", ("td3.widths", "(0,)", "positive layer sizes")),
    ("train MediumMaze-Easy --disagreement.share 2", ("disagreement.share", "2.0", "a share in (0, 1]")),
    # words that are no options, or not what their option takes
    ("train Room --steps many", ("steps", "'many'", "must be a whole number")),
    ("train Room --steps 1e-3", ("steps", "'1e-3'", "must be a whole number")),
    ("train Room --steps", ("steps", "missing", "one value: a whole number")),
    ("train Room --beta 1 much", ("beta", "'much'", "must be a number")),
    ("train Room --seeds 1 2", ("seeds", "'1 2'", "one value: a whole number (how many seeds to train")),
    ("train Room --room.subgoal 3", ("room.subgoal", "missing", "2 values, each a whole number")),
    ("train Room --json 1", ("json", "'1'", "a switch")),
    ("train Room --lengths short", ("lengths", "'short'", "bounded, plain")),
    ("train Room --stps 100", ("stps", "unknown option", "did you mean --steps or", "hyper-rl train --help")),
    ("train Room Hall", ("'Hall'", "hyper-rl train --help")),
    ("train Room --preset", ("preset", "a value is missing", "one value: a word (paper (faithful), robust")),
    ("train Room --preset --seeds 2", ("preset", "a value is missing")),
    ("train Room --preset=", ("preset", "unknown ''", "paper, robust")),
    ("train --resume", ("resume", "a value is missing", "one value: a path (continue this run folder")),
    ("train Room --", ("train: got '--', must not stand there", "hyper-rl train --help")),
    ("train Room --=3", ("train: got '--=3', must not stand there",)),
    ("train Room --steps 0 --out -dash", ("steps", "0", "a whole number >= 1")),
    ("train Room --log wandb -dash", ("log: got '-dash', must not begin with a dash",)),
    ("evaluate -dash", ("folder: got '-dash', must not begin with a dash; a path of that name is ./-dash",)),
    ("train Room --seeds None", ("seeds", "'None'", "must be a whole number")),
    ("evaluate", ("folder", "missing", "Run folder", "hyper-rl evaluate --help")),
    ("check-env Pendulum-v1 --success won", ("success", "'won'", "info, reward, terminated")),
    ("linear river", ("mdp", "'river'", "riverswim")),
]


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the command answered with."""
    try:
        code = main(words.split())
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert said.err.startswith("hyper-rl: error: ") and said.err.count("\n") == 1, said.err
    return said.err


@pytest.mark.parametrize(("words", "says"), REFUSED)
def test_one_line_and_nothing_written(
    words: str,
    says: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(words, capsys)
    for part in says:
        assert part in line
    assert list(tmp_path.iterdir()) == []


def test_a_replay_must_leave_room_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs of 10 million transitions of 12 numbers: 915.5 MiB, too much for 1 GiB with a tenth kept free."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hyper_rl.training.memory.available", lambda _: 2**30)
    line = refused("train MediumMaze-Easy --capacity 10000000 --seeds 2", capsys)
    for part in ("capacity", "2 run(s)", "replay 915.5 MiB", "1.0 GiB is free", "--seeds"):
        assert part in line
    assert list(tmp_path.iterdir()) == []


def test_far_too_many_runs_are_refused_before_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To build each of them, only to say that they do not fit, would take minutes."""
    built: list[int] = []

    def build(config: Config) -> Program:
        built.append(len(config.runs))
        return build_program(config)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hyper_rl.training.memory.available", lambda _: 2**30)
    monkeypatch.setattr("hyper_rl.training.trainer.build_program", build)
    line = refused("train MediumMaze-Easy --beta 0.1 1 --seeds 50000", capsys)
    for part in ("capacity", "100000 run(s) need 5.3 TiB (replay 4.4 TiB)", "1.0 GiB is free", "--seeds"):
        assert part in line
    assert built == [1] and list(tmp_path.iterdir()) == []


def test_whole_numbers_as_people_write_them() -> None:
    options = parse(["Room", "--steps", "1e3", "--eval-every=2_000", "--seed", "7", "--td3.widths", "1e2", "64"])
    assert (options.steps, options.eval_every, options.seed, options.td3.widths) == (1000, 2000, 7, (100, 64))


def test_words_as_the_help_and_the_shell_know_them() -> None:
    """The default that `--help` shows may be written out; a name may begin with a dash."""
    options = parse(["Room", "--warmup", "None", "--bonus-scale=None", "--out", "-dash", "--beta", "-1", "2"])
    assert (options.warmup, options.bonus_scale) == (None, None)
    assert options.out == Path("-dash") and options.beta == (-1.0, 2.0)


@pytest.mark.parametrize("made", [TrainOptions, StudyOptions, EvaluateOptions, RenderOptions, LinearArgs])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_flag_of_the_parser_is_known(made: type) -> None:
    """One that only tyro knew would be refused before it sees it."""
    theirs = {flag for action in tyro.extras.get_parser(made)._actions for flag in action.option_strings}
    assert {flag for option in options_of(made) for flag in option.flags} == theirs - {"-h", "--help"}


# Folders that exist


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings that are not the defaults, so that a default can be one of the "other settings"."""
    out = tmp_path_factory.mktemp("bad") / "run"
    words = "Room --method curiosity --beta 0.1 --seeds 2 --steps 200 --eval-every 100 --eval-episodes 2"
    assert main(["train", *words.split(), "--out", str(out)]) == 0
    return out


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train Room --steps 100 --out RUN", ("out", "RUN", "exists already", "--resume RUN")),
        ("train Room --steps 100 --out RUN/config.json", ("out", "exists already")),
        ("train --resume RUN --method decouple", ("method", "'decouple'", "made with 'curiosity'")),
        ("train --resume RUN --beta 0.2", ("beta", "0.2", "made with [0.1]")),
        ("train --resume RUN --steps 400", ("steps", "400", "made with 200")),
        ("train --resume RUN --seeds 3", ("seeds", "RUN was made with")),
        ("train MediumMaze-Easy --resume RUN", ("task", "'MediumMaze-Easy'", "made with 'Room'")),
        ("train --resume RUN --preset paper", ("preset", "'paper'", "made with 'robust'")),
        ("train --resume RUN --tabular-q.step-size 0.1", ("0.1", "RUN was made with")),
        ("train --resume RUN --out elsewhere", ("out", "'elsewhere'", "must be left out")),
        ("train --resume RUN --extend-steps 200", ("extend_steps", "200", "more than the 200 steps")),
        ("train --resume RUN --extend-steps -1", ("extend_steps", "-1", "more than the 200 steps")),
        ("train --resume RUN --extend-steps 3000000000", ("steps", "3000000000", "below 2^31")),
        ("train --resume RUN --keep 0", ("keep", "0", "a whole number >= 1")),
        ("train --resume RUN --checkpoint-seconds nan", ("checkpoint_seconds", "nan", "a number > 0")),
        # the command's own defaults, where the folder has something else
        ("train --resume RUN --method hyper", ("method", "'hyper'", "made with 'curiosity'")),
        ("train --resume RUN --beta 1", ("beta", "1.0", "made with [0.1]")),
        ("train --resume RUN --seeds 1", ("seeds", "RUN was made with")),
        ("evaluate RUN --run 2", ("run", "2", "between 0 and 1")),
        ("evaluate RUN --run -1", ("run", "-1", "between 0 and 1")),
        ("evaluate RUN --seed -1", ("seed", "-1", "between 0 and 4294967295")),
    ],
)
def test_an_existing_folder_is_left_as_it_is(
    words: str,
    says: tuple[str, ...],
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents(run)
    line = refused(words.replace("RUN", str(run)), capsys)
    for part in says:
        assert part.replace("RUN", str(run)) in line
    assert contents(run) == before and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--td3.no-layer-norm", ("layer_norm", "False")),
        ("--disagreement.no-normalise", ("normalise", "False")),
        ("--td3.widths 9", ("widths", "9")),
    ],
)
def test_a_part_with_other_settings_is_refused(
    words: str, says: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under `robust` both switches are on; a folder that was only begun is enough to ask."""
    folder = RunFolder.create(tmp_path / "run", resolve(parse(["MediumMaze-Easy", "--preset", "robust"])))
    before = contents(folder.path)
    line = refused(f"train --resume {folder.path} {words}", capsys)
    for part in (*says, "was made with"):
        assert part in line
    assert contents(folder.path) == before


@pytest.mark.parametrize("words", ["--method curiosity", "--steps 200", "--beta 0.1 --seeds 2", "--json"])
def test_settings_of_the_folder_may_be_repeated(words: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(run), *words.split()]) == 0, capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refused(f"train Room --steps 100 --out {tmp_path / 'file' / 'run'}", capsys)
    assert str(tmp_path / "file" / "run") in line
