"""Whole copies of files: by a clone where there is one, inside the kernel, or by hand, and the same bytes each time."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from perago.lake.file_copy import copy_whole, try_kernel_copy

DATA = bytes(range(256)) * 10_000


def copied(folder: Path, *, by_kernel: bool = False) -> bytes | None:
    """Return the content of a copy of DATA, or None if the kernel refuses to make one."""
    (folder / "from").write_bytes(DATA)
    source = os.open(folder / "from", os.O_RDONLY)
    out = os.open(folder / "to", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        if by_kernel:
            return (folder / "to").read_bytes() if try_kernel_copy(source, out) else None
        copy_whole(source, out)
        return (folder / "to").read_bytes()
    finally:
        os.close(source)
        os.close(out)


class Kernel:
    """The abilities of a file system; records the calls, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, clone: int | None, by_range: int | None) -> None:
        self.asked: list[str] = []
        self._clone, self._by_range, self._really = clone, by_range, os.copy_file_range
        monkeypatch.setattr(fcntl, "ioctl", self._ioctl)
        monkeypatch.setattr(os, "copy_file_range", self._copy_file_range)

    def _ioctl(self, out: int, _: int, source: int) -> int:
        self.asked.append("clone")
        if self._clone is not None:
            raise OSError(self._clone, os.strerror(self._clone))
        os.write(out, os.pread(source, len(DATA), 0))
        return 0

    def _copy_file_range(self, source: int, out: int, most: int) -> int:
        self.asked.append("range")
        if self._by_range is not None:
            raise OSError(self._by_range, os.strerror(self._by_range))
        return self._really(source, out, most)


def test_a_file_is_cloned_where_that_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, clone=None, by_range=None)

    assert copied(tmp_path) == DATA
    assert kernel.asked == ["clone"]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.EINVAL])
def test_a_file_that_cannot_be_cloned_is_copied_by_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    kernel = Kernel(monkeypatch, clone=number, by_range=None)

    assert copied(tmp_path, by_kernel=True) == DATA
    assert set(kernel.asked) == {"clone", "range"}


def test_a_file_that_the_kernel_cannot_copy_is_copied_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernel(monkeypatch, clone=errno.EXDEV, by_range=errno.EXDEV)

    assert copied(tmp_path) == DATA


def test_a_file_that_the_kernel_cannot_copy_is_left_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernel(monkeypatch, clone=errno.EXDEV, by_range=errno.EXDEV)

    assert copied(tmp_path, by_kernel=True) is None
    assert (tmp_path / "to").read_bytes() == b""


@pytest.mark.parametrize(("clone", "by_range"), [(errno.ENOSPC, None), (errno.EXDEV, errno.ENOSPC)])
def test_a_full_disk_is_no_reason_to_try_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clone: int, by_range: int | None
) -> None:
    Kernel(monkeypatch, clone=clone, by_range=by_range)

    with pytest.raises(OSError, match="No space left"):
        copied(tmp_path)
