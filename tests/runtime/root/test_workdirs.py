"""Removing a folder whatever is in it, and nothing that is not in it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perago.runtime.root.workdirs import PAUSES, remove_tree
from tests.support.processes.forked_child import as_an_ordinary_user


def no_pause(_seconds: float) -> None:
    raise AssertionError("nothing is to be waited for")


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nowhere", pause=no_pause)


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside, path = tmp_path / "outside", tmp_path / "path"
    for folder in (outside, path / "deep"):
        folder.mkdir(parents=True)
    (outside / "kept").touch()
    (path / "link").symlink_to(outside)
    (path / "deep" / "link").symlink_to(outside)
    (path / "deep" / "broken").symlink_to("nowhere")
    remove_tree(path, pause=no_pause)
    assert not path.exists()
    assert (outside / "kept").exists()


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="Not a directory"):
        remove_tree(tmp_path / "link", pause=no_pause)
    assert (tmp_path / "outside" / "kept").exists()


@pytest.mark.parametrize("mode", [0o500, 0o400, 0o000])
def test_closed_folders_are_opened_up_by_whoever_made_them(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(0o777)

    def make_and_remove() -> None:
        # Relative: the folders above the current one are root's.
        path = Path("root", "closed")
        (path / "a" / "b" / "c").mkdir(parents=True)
        for folder in (path / "a" / "b" / "c", path / "a" / "b", path / "a", path):
            (folder / "file").touch()
            (folder / "link").symlink_to("/nowhere")
            folder.chmod(mode)
        remove_tree(path, pause=no_pause)
        assert not path.exists()

    assert as_an_ordinary_user(tmp_path, make_and_remove) == ""


def test_a_tree_deeper_than_any_path_and_any_stack_goes(tmp_path: Path) -> None:
    path = tmp_path / "deep"
    path.mkdir()
    folder = os.open(path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("n" * 20, dir_fd=folder)
        below = os.open("n" * 20, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    remove_tree(path, pause=no_pause)
    assert list(tmp_path.iterdir()) == []


def test_names_of_any_bytes_go(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b"n" * 255):
        folder = os.path.join(os.fsencode(path), name)
        os.makedirs(folder)
        with open(os.path.join(folder, name), "wb"):
            pass
    remove_tree(path, pause=no_pause)
    assert not path.exists()


def test_removal_of_a_folder_that_is_still_written_to_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "busy"
    (path / "deep").mkdir(parents=True)
    paused: list[float] = []
    rmdir, late = os.rmdir, ["deep", "top"]

    def rmdir_after_a_late_file(name: str | Path, *, dir_fd: int | None = None) -> None:
        """Write a file right before a folder is removed, as a child process that outlives its body."""
        if late and (late[0] == "top") == (dir_fd is None):
            late.pop(0)
            os.close(os.open(os.path.join(name, "late"), os.O_CREAT, dir_fd=dir_fd))
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir_after_a_late_file)
    remove_tree(path, pause=paused.append)
    assert not path.exists()
    assert paused == list(PAUSES[:2])


def test_removal_of_a_folder_that_is_always_written_to_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "busy").mkdir()
    paused: list[float] = []

    def never(_name: object, **_folder: object) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(os, "rmdir", never)
    with pytest.raises(OSError, match="not empty"):
        remove_tree(tmp_path / "busy", pause=paused.append)
    assert paused == list(PAUSES)


def test_a_full_disk_on_which_nothing_can_be_moved_gets_room_by_the_first_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "full"
    (path / "deep").mkdir(parents=True)
    (path / "large").touch()
    rename = os.rename

    def needs_room(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if (path / "large").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", needs_room)
    monkeypatch.setattr(os, "listdir", lambda folder: sorted(entry.name for entry in os.scandir(folder)))
    paused: list[float] = []
    remove_tree(path, pause=paused.append)
    assert not path.exists()
    assert paused == list(PAUSES[:1])


def test_a_path_that_cannot_be_removed_is_named_and_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "path"
    for folder in ("a", "b", "c"):
        (path / folder).mkdir(parents=True)
        (path / folder / f"file-{folder}").touch()
    (path / "marker").touch()
    unlink = os.unlink

    def unless_it_is_anothers(name: str, *, dir_fd: int | None = None) -> None:
        if name == "file-b":
            raise PermissionError(errno.EPERM, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unless_it_is_anothers)
    with pytest.raises(PermissionError, match="file-b"):
        remove_tree(path, last="marker", pause=no_pause)
    assert sorted(found.name for found in path.rglob("*") if found.is_file()) == ["file-b", "marker"]


def test_the_last_file_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "path"
    (path / "deep").mkdir(parents=True)
    for name in ("marker", "other", "deep/marker", "deep/other"):
        (path / name).touch()
    unlinked: list[tuple[str, int]] = []
    unlink = os.unlink

    def note(name: str, *, dir_fd: int) -> None:
        unlinked.append((name, len(list(path.rglob("*")))))
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", note)
    remove_tree(path, last="marker", pause=no_pause)
    assert unlinked[-1] == ("marker", 1)
    assert len(unlinked) == 4
