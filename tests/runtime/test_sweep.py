"""Sweeping workdirs: what a dead process left below the root goes, what a living one has stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perago.runtime.outbox import OUTBOX
from perago.runtime.process import process_identity
from perago.runtime.sweep import sweep_workdirs

HOUR = 3600.0
DAY = 24 * HOUR


def a_workdir(root: Path, name: str, marker: object | None = None, *, age: float = 0) -> Path:
    path = root / name
    path.mkdir(parents=True)
    (path / "data.txt").write_text("x")
    if marker is not None:
        (path / ".perago-attempt.json").write_text(json.dumps(marker))
    os.utime(path, (DAY - age, DAY - age))
    return path


def swept(root: Path, **changed: Any) -> list[str]:
    return [path.name for path in sweep_workdirs(root, now=DAY, ttl=HOUR, **changed)]


def test_one_of_a_dead_process_goes_at_once(tmp_path: Path) -> None:
    gone = a_workdir(tmp_path, "gone", {**process_identity(), "pid_started": 1})
    assert swept(tmp_path) == ["gone"]
    assert not gone.exists()


def test_one_of_a_living_process_stays_whatever_its_age(tmp_path: Path) -> None:
    a_workdir(tmp_path, "mine", process_identity(), age=23 * HOUR)
    assert swept(tmp_path) == []


@pytest.mark.parametrize(
    "marker", [None, ["not", "a", "marker"], {**process_identity(), "host": "elsewhere"}]
)
def test_one_of_which_nobody_can_tell_goes_by_its_age(tmp_path: Path, marker: object) -> None:
    a_workdir(tmp_path, "old", marker, age=2 * HOUR)
    a_workdir(tmp_path, "young", marker, age=HOUR / 2)
    assert swept(tmp_path) == ["old"]


def test_the_marker_is_what_is_asked_about(tmp_path: Path) -> None:
    a_workdir(tmp_path, "a", {**process_identity(), "pid": 1})
    a_workdir(tmp_path, "b", {**process_identity(), "pid": 2})
    assert swept(tmp_path, alive=lambda marker: marker["pid"] == 1) == ["b"]


def test_the_outbox_files_and_links_are_no_workdirs(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    a_workdir(root, OUTBOX, age=2 * HOUR)
    kept = a_workdir(elsewhere, "kept", age=2 * HOUR)
    (root / "link").symlink_to(kept)
    (root / "worker.lock").touch()
    assert swept(root) == []
    assert sorted(path.name for path in root.iterdir()) == ["link", OUTBOX, "worker.lock"]
    assert kept.exists()


def test_read_only_folders_go_too(tmp_path: Path) -> None:
    path = a_workdir(tmp_path, "shut", {**process_identity(), "pid": 1})
    (path / "deep").mkdir()
    (path / "deep" / "file").touch()
    (path / "deep").chmod(0o500)
    path.chmod(0o500)
    assert swept(tmp_path, alive=lambda _: False) == ["shut"]


def test_a_root_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert swept(tmp_path / "nowhere") == []
