"""The root ignores itself in git, where Perago has made it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from perago.runtime.root.state_dir import make_root


def test_a_root_that_perago_makes_is_ignored_by_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    make_root(tmp_path / "deep" / ".perago")
    (tmp_path / "deep" / ".perago" / "lake.db").touch()
    shown = subprocess.run(
        ["git", "status", "--porcelain", "-uall"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout == ""


def test_a_folder_that_was_there_before_is_left_as_it_is(tmp_path: Path) -> None:
    make_root(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_there_stays(tmp_path: Path) -> None:
    make_root(tmp_path / "root")
    (tmp_path / "root" / ".gitignore").write_text("mine")
    make_root(tmp_path / "root")
    assert (tmp_path / "root" / ".gitignore").read_text() == "mine"


def test_a_root_that_cannot_be_made_is_no_error_here(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    make_root(tmp_path / "file" / "root")
