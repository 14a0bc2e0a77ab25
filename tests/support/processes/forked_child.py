"""Work in a forked child: as an ordinary user, or killed at a chosen system call."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

KILLED = "killed"
_NOBODY = 65534
_CUT = 99


def as_an_ordinary_user(folder: Path, work: Callable[[], None]) -> str:
    """Return what `work` raises in a child that is in `folder` and not root, or ""."""

    def as_nobody() -> None:
        os.chdir(folder)
        if os.getuid() == 0:
            os.setuid(_NOBODY)
        work()

    return in_a_child(as_nobody)


def killed_before_call(number: int, folder: Path, work: Callable[[], None]) -> bool:
    """Run `work` in a child that dies before its nth system call on files; returns whether it got there."""

    def watched() -> None:
        seen = 0

        def hook(event: str, _arguments: tuple[object, ...]) -> None:
            nonlocal seen
            if event.startswith("os.") or event == "open":
                seen += 1
                if seen == number:
                    os._exit(_CUT)

        os.chdir(folder)
        sys.addaudithook(hook)
        work()

    said = in_a_child(watched)
    assert said in ("", KILLED), said
    return said == KILLED


def in_a_child(work: Callable[[], None]) -> str:
    """Return what `work` raises in a forked child, or `KILLED`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        text = answer.read().decode()
    _, status = os.waitpid(child, 0)
    return KILLED if os.waitstatus_to_exitcode(status) == _CUT else text
