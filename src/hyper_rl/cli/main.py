"""The command `hyper-rl`: one line per error, never a traceback for something the user can fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

USAGE = """usage: hyper-rl COMMAND ...

Curiosity-driven exploration that needs no tuning of beta.

  train TASK     train one method on a task, over seeds and betas as one program
  evaluate RUN   judge the saved agents of a run folder, or one agent, on fresh episodes
  tasks          list the tasks
  check-env ID   look at a Gymnasium environment before training on it
  render RUN     a moving picture of a trained agent
  study NAME     a figure or table of the paper, or a grid of runs from a TOML file
  claims DIR...  what the runs of studies say about each claim of the paper
  report DIR...  one HTML page about studies: verdicts, curves, heat maps, every run
  demo           Hyper and UCB-Q in the room over three betas, with pictures
  linear MDP     Linear-UCB-Hyper and LSVI-UCB on a linear MDP

Each command answers to --help. Version: hyper-rl --version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if words else 2
    if words[0] == "--version":
        from hyper_rl import __version__

        print(f"hyper-rl {__version__}")
        return 0
    from hyper_rl.errors import UserError, unknown_name

    try:
        if words[0] not in COMMANDS:
            raise unknown_name("command", words[0], COMMANDS)
        refuse_repeated(words[1:])
        code = COMMANDS[words[0]](words[1:])
        sys.stdout.flush()  # here, where a full disk is still an error of ours
        return code
    except UserError as error:
        print(f"hyper-rl: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hyper-rl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        # A full disk, a folder without permission: named by the system, and nothing of ours to look at.
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"hyper-rl: error: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def refuse_repeated(words: Sequence[str]) -> None:
    """An option given twice has two values, of which a parser would take the last without a word."""
    from hyper_rl.errors import UserError

    seen: set[str] = set()
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if word == "--":
            return
        if name.startswith("--") and name in seen:
            raise UserError(
                f"{name.removeprefix('--')}: given twice; several values of one option stand behind it once"
            )
        seen.add(name)


def _train(words: Sequence[str]) -> int:
    from hyper_rl.allocator import keep_freed_memory
    from hyper_rl.cli.train import run_train
    from hyper_rl.training.trainer import Interrupted

    keep_freed_memory()
    try:
        return run_train(words)
    except Interrupted as stop:
        print(f"hyper-rl: {stop}", file=sys.stderr)
        return 130


def _study(words: Sequence[str]) -> int:
    from hyper_rl.allocator import keep_freed_memory
    from hyper_rl.cli.parsing import read_options
    from hyper_rl.cli.study import StudyOptions, run_study_command
    from hyper_rl.studies.runner import StudyInterrupted

    keep_freed_memory()
    try:
        return run_study_command(read_options(StudyOptions, words, "hyper-rl study"))
    except StudyInterrupted as stop:
        print(f"hyper-rl: {stop}", file=sys.stderr)
        return 130


def _claims(words: Sequence[str]) -> int:
    from hyper_rl.cli.claims import ClaimsOptions, run_claims
    from hyper_rl.cli.parsing import read_options

    return run_claims(read_options(ClaimsOptions, words, "hyper-rl claims"))


def _report(words: Sequence[str]) -> int:
    from hyper_rl.cli.parsing import read_options
    from hyper_rl.cli.report import ReportOptions, run_report

    return run_report(read_options(ReportOptions, words, "hyper-rl report"))


def _evaluate(words: Sequence[str]) -> int:
    from hyper_rl.cli.evaluate import EvaluateOptions, run_evaluate
    from hyper_rl.cli.parsing import read_options

    return run_evaluate(read_options(EvaluateOptions, words, "hyper-rl evaluate"))


def _tasks(words: Sequence[str]) -> int:
    from hyper_rl.cli.parsing import read_options
    from hyper_rl.cli.tasks import TasksOptions, run_tasks

    return run_tasks(read_options(TasksOptions, words, "hyper-rl tasks"))


def _demo(words: Sequence[str]) -> int:
    from hyper_rl.cli.demo import DemoOptions, run_demo
    from hyper_rl.cli.parsing import read_options

    return run_demo(read_options(DemoOptions, words, "hyper-rl demo"))


def _check_env(words: Sequence[str]) -> int:
    from hyper_rl.cli.check_env import run_check_env

    return run_check_env(words)


def _render(words: Sequence[str]) -> int:
    from hyper_rl.cli.parsing import read_options
    from hyper_rl.cli.render import RenderOptions, run_render

    return run_render(read_options(RenderOptions, words, "hyper-rl render"))


def _linear(words: Sequence[str]) -> int:
    from hyper_rl.cli.linear import LinearArgs, run_linear
    from hyper_rl.cli.parsing import read_options

    return run_linear(read_options(LinearArgs, words, "hyper-rl linear"))


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": _train,
    "study": _study,
    "claims": _claims,
    "report": _report,
    "evaluate": _evaluate,
    "tasks": _tasks,
    "check-env": _check_env,
    "render": _render,
    "demo": _demo,
    "linear": _linear,
}


if __name__ == "__main__":
    sys.exit(main())
