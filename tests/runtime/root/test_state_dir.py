"""The workspace root: it ignores itself in git, one process locks it, and its processes are recognized."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.root.state_dir import children, locked_root, make_root


def test_a_child_missed_by_one_scan_is_found_by_the_next_two() -> None:
    looks = iter([{1, 2}, {1}, {1, 2}, {1, 2}])
    assert children(lambda: next(looks)) == {1, 2}


def test_a_list_that_never_settles_is_taken_as_it_was_last_seen() -> None:
    looks = iter(range(100))
    assert children(lambda: {next(looks)}) == {5}


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


def test_an_existing_gitignore_stays(tmp_path: Path) -> None:
    make_root(tmp_path / "root")
    (tmp_path / "root" / ".gitignore").write_text("mine")
    make_root(tmp_path / "root")
    assert (tmp_path / "root" / ".gitignore").read_text() == "mine"


def test_a_root_that_cannot_be_made_is_no_error_here(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    make_root(tmp_path / "file" / "root")


HOLD = """
import sys
from pathlib import Path
from perago.runtime.root.state_dir import locked_root
with locked_root(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_root_that_a_worker_holds_is_refused_with_the_pid_of_its_holder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        with pytest.raises(RuntimeConfigError, match=f"process {holder.pid}"), locked_root(tmp_path):
            pass
        holder.kill()


@pytest.mark.slow
def test_a_root_whose_holder_is_dead_is_free(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()

    with locked_root(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_root_that_cannot_be_written_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(RuntimeConfigError, match=r"not writable.*--root"), locked_root(tmp_path / "file"):
        pass
