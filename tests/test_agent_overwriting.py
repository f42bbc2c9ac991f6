"""An agent that is saved replaces its own files, and never those of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hyper_rl
from agent_checks import contents, refused
from hyper_rl import Hyper
from hyper_rl.training.run_folder import RunFolder

pytestmark = pytest.mark.xdist_group("agent-safety")


def test_only_a_saved_agent_is_replaced(room_agent: Hyper, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    room_agent.save(mine)
    assert "exists already" in refused(lambda: room_agent.save(mine))
    room_agent.save(mine, overwrite=True)
    room_agent.save(mine, overwrite=True, policy_only=True)
    assert sorted(contents(mine)) == ["agent.json", "policy.safetensors"]

    (tmp_path / "empty").mkdir()
    room_agent.save(tmp_path / "empty", policy_only=True)

    thesis = tmp_path / "thesis"
    (thesis / "figures").mkdir(parents=True)
    (thesis / "figures" / "1.png").write_text("years of work")
    (thesis / "agent.json").write_text(json.dumps({"name": "Smith"}))
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("a file")
    link.symlink_to(mine)
    for path in (thesis, file, link):
        line = refused(lambda path=path: room_agent.save(path, overwrite=True))
        assert str(path) in line and "is not an agent that was saved" in line
    assert contents(thesis)["figures/1.png"] == b"years of work" and file.read_text() == "a file" and link.is_symlink()
    assert "is not a folder" in refused(lambda: room_agent.save(file / "agent"))
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "empty", "thesis", "file", "link"}, "no leftovers"


@pytest.mark.parametrize("name", ["notes.txt", "runs/0/judged.gif", "checkpoint/notes.txt", "runs/1/agent/agent.json"])
def test_what_lies_beside_an_agent_is_not_lost(room_agent: Hyper, tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine"
    room_agent.save(path)
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("mine")
    before = contents(path)
    assert f"also holds {name}" in refused(lambda: room_agent.save(path, overwrite=True))
    assert contents(path) == before


def test_a_folder_that_is_being_trained_is_not_replaced(room_agent: Hyper, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    room_agent.save(path)
    with RunFolder(path).lock():
        assert "is being trained by another process" in refused(lambda: room_agent.save(path, overwrite=True))
    (path / ".lock").write_text("process 1 on a machine that lost its power\n")
    room_agent.save(path, overwrite=True)


def test_a_loaded_agent_that_replaces_its_own_folder_goes_on(room_agent: Hyper, tmp_path: Path) -> None:
    room_agent.save(tmp_path / "agent")
    loaded = hyper_rl.load(tmp_path / "agent")
    loaded.save(tmp_path / "agent", policy_only=True, overwrite=True)
    assert loaded.learn(100).num_timesteps == room_agent.num_timesteps + 100
