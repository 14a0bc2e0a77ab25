"""Sweeping workdirs: what a dead process left below the root goes, what a living one has stays, and so does the rest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perago.protocol.names import workdir_name
from perago.runtime.root.state_dir import process_identity
from perago.runtime.sweep.workdirs import sweep_workdirs
from perago.runtime.worker.outbox import OUTBOX

HOUR = 3600.0
DAY = 24 * HOUR
TASK = "0b7a7b54-8f67-4e58-a4c5-93f5c3f3a2bd"
EXECUTION = "0123456789abcdef"
NAME = workdir_name(TASK, EXECUTION)
FORMS = [NAME.working, NAME.making, NAME.removing]
DEAD = {"pid_started": 1}


def a_marker(**changed: Any) -> dict[str, Any]:
    return {
        "attempt": {"task_id": TASK},
        "execution_id": EXECUTION,
        **process_identity(),
        **changed,
    }


def a_folder(root: Path, name: str, marker: object | None = None, *, age: float = 0) -> Path:
    path = root / name
    path.mkdir(parents=True)
    (path / "data.txt").write_text("x")
    if marker is not None:
        (path / ".perago-attempt.json").write_text(json.dumps(marker))
    os.utime(path, (DAY - age, DAY - age))
    return path


def swept(root: Path, **changed: Any) -> list[str]:
    return [path.name for path in sweep_workdirs(root, now=DAY, ttl=HOUR, **changed)]


@pytest.mark.parametrize("name", [*FORMS, NAME.old])
def test_a_workdir_of_a_dead_process_is_removed_at_once(tmp_path: Path, name: str) -> None:
    a_folder(tmp_path, name, a_marker(**DEAD))
    assert swept(tmp_path) == [name]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [*FORMS, NAME.old])
def test_a_workdir_of_a_living_process_stays_whatever_its_age(tmp_path: Path, name: str) -> None:
    a_folder(tmp_path, name, a_marker(), age=23 * HOUR)
    assert swept(tmp_path) == []
    assert (tmp_path / name / "data.txt").exists()


def test_a_workdir_of_another_host_is_removed_by_its_age(tmp_path: Path) -> None:
    path = a_folder(tmp_path, NAME.working, a_marker(host="elsewhere"), age=HOUR / 2)
    assert swept(tmp_path) == []
    os.utime(path, (DAY - 2 * HOUR, DAY - 2 * HOUR))
    assert swept(tmp_path) == [NAME.working]


def test_a_workdir_whose_execution_runs_here_stays_though_the_machine_was_renamed(
    tmp_path: Path,
) -> None:
    a_folder(tmp_path, NAME.working, a_marker(host="the-name-of-before"), age=2 * HOUR)
    assert swept(tmp_path, runs_here=lambda execution_id: execution_id == EXECUTION) == []


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "marker",
    [None, ["not", "a", "marker"], {}, {"attempt": {"task_id": 7}, "execution_id": 7}, process_identity()],
)
def test_a_workdir_without_a_marker_is_removed_at_once_unless_its_execution_runs_here(
    tmp_path: Path, name: str, marker: object
) -> None:
    a_folder(tmp_path, name, marker)
    assert swept(tmp_path, runs_here=lambda execution_id: execution_id == EXECUTION) == []
    assert swept(tmp_path, runs_here=lambda execution_id: execution_id != EXECUTION) == [name]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_a_marker_that_is_no_file_is_none(tmp_path: Path, kind: str) -> None:
    marker = a_folder(tmp_path / "root", NAME.working) / ".perago-attempt.json"
    if kind == "pipe":
        os.mkfifo(marker)
    elif kind == "folder":
        marker.mkdir()
    else:
        (tmp_path / "elsewhere.json").write_text(json.dumps(a_marker()))
        marker.symlink_to(tmp_path / "elsewhere.json")
    assert swept(tmp_path / "root") == [NAME.working]


def test_the_marker_is_what_is_asked_about(tmp_path: Path) -> None:
    for pid, execution_id in ((1, "a" * 16), (2, "b" * 16)):
        name = workdir_name(TASK, execution_id).working
        a_folder(tmp_path, name, a_marker(pid=pid, execution_id=execution_id))
    gone = workdir_name(TASK, "b" * 16).working
    assert swept(tmp_path, alive=lambda marker: marker["pid"] == 1) == [gone]


USERS_OWN = [
    "photos",
    "lake",
    "runs",
    "cache",
    "spark",
    "input",
    OUTBOX,
    ".git",
    ".perago",
    "perago-workdir-",
    "perago-workdir-notes",
    f"perago-workdir-{EXECUTION}",
    f"perago-workdir-{TASK}",
    f"perago-workdir-{TASK}-{EXECUTION}-copy",
    f"perago-workdir-{TASK}-{EXECUTION}\n",
    f"perago-workdir-{TASK}-{EXECUTION.upper()}",
    f"my-perago-workdir-{TASK}-{EXECUTION}",
    f".perago-{TASK}-{EXECUTION}",
    f"songs-{EXECUTION}",
    NAME.old,
]


@pytest.mark.parametrize("name", USERS_OWN)
def test_a_folder_that_perago_did_not_make_stays_for_ever(tmp_path: Path, name: str) -> None:
    kept = a_folder(tmp_path, name, age=DAY)
    assert swept(tmp_path) == []
    assert (kept / "data.txt").read_text() == "x"


@pytest.mark.parametrize(
    "name", ["copy-for-a-look", f"{NAME.working}-copy", workdir_name(TASK, "f" * 16).old]
)
def test_a_copy_of_a_workdir_stays_though_the_marker_in_it_names_a_dead_process(
    tmp_path: Path, name: str
) -> None:
    kept = a_folder(tmp_path, name, a_marker(**DEAD), age=DAY)
    assert swept(tmp_path) == []
    assert kept.exists()


@pytest.mark.parametrize("name", FORMS)
def test_a_link_under_a_workdirs_name_is_neither_followed_nor_removed(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    kept = a_folder(tmp_path / "elsewhere", NAME.working, a_marker(**DEAD))
    root.mkdir()
    (root / name).symlink_to(kept)
    assert swept(root) == []
    assert (root / name).is_symlink()
    assert (kept / "data.txt").exists()


def test_a_file_under_a_workdirs_name_stays(tmp_path: Path) -> None:
    (tmp_path / NAME.working).touch()
    assert swept(tmp_path) == []
    assert (tmp_path / NAME.working).exists()


def test_a_root_behind_a_link_is_swept_like_any_other(tmp_path: Path) -> None:
    real, root = tmp_path / "real", tmp_path / "root"
    a_folder(real, NAME.working, a_marker(**DEAD))
    a_folder(real, "photos", age=DAY)
    root.symlink_to(real)
    assert swept(root) == [NAME.working]
    assert [path.name for path in real.iterdir()] == ["photos"]


def test_a_removal_that_was_cut_does_not_keep_the_next_one_from_its_work(tmp_path: Path) -> None:
    a_folder(tmp_path, NAME.removing)
    a_folder(tmp_path, NAME.working, a_marker(**DEAD))
    swept(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_workdir_that_cannot_be_removed_does_not_keep_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, gone = (workdir_name(TASK, letter * 16) for letter in "ab")
    for name in (stuck, gone):
        a_folder(tmp_path, name.working)
    # A file in the way of the rename.
    (tmp_path / stuck.removing).touch()
    assert swept(tmp_path) == [gone.working]
    assert f"failed to clean workdir {tmp_path / stuck.working}" in caplog.text


def test_a_root_that_cannot_be_read_is_said_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "root").touch()
    assert swept(tmp_path / "root") == []
    assert "cannot be swept" in caplog.text


def test_a_root_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert swept(tmp_path / "nowhere") == []
