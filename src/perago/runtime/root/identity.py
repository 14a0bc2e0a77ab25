"""Which process is which, and whose child: a pid alone may be reused, a pid and its start time are not."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_LOOKS = 5


def process_identity(pid: int | None = None) -> dict[str, Any]:
    """Host, pid and start time of a process (this one by default)."""
    pid = os.getpid() if pid is None else pid
    return {"host": socket.gethostname(), "pid": pid, "pid_started": _started(pid)}


def is_alive(identity: Mapping[str, Any]) -> bool:
    """Whether that process is still running here; one of another host counts as alive, we cannot tell."""
    if identity.get("host") != socket.gethostname():
        return True
    pid = identity.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    then, now = identity.get("pid_started"), _started(pid)
    return then is None or now is None or then == now


def is_zombie(pid: int) -> bool:
    """Whether that process has ended and nobody has asked how yet."""
    return _started(pid) == -1


def children(read: Callable[[], set[int]] | None = None) -> set[int]:
    """The processes whose parent is this one, dead ones too, where /proc tells."""
    read = read or _children_now
    found = read()
    for _ in range(_LOOKS):
        # A child that ends while the list is read may hide another: two looks have to agree.
        again = read()
        if again == found:
            break
        found = again
    return found


def descendants(pid: int) -> list[int]:
    """The processes below one that have not ended, parents first, where /proc tells."""
    found = sorted(_children_now(str(pid)))
    # Grows while it is gone through.
    for one in found:
        found.extend(sorted(_children_now(str(one))))
    return [one for one in found if not is_zombie(one)]


def _children_now(process: str = "self") -> set[int]:
    found: set[int] = set()
    # Every attempt asks several times, so without the comfort of Path.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            # A thread may have ended since.
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{thread}/children", "rb") as listed,
            ):
                found.update(map(int, listed.read().split()))
    return found


def _started(pid: int) -> int | None:
    """The start time in clock ticks since boot, -1 for a zombie, or None where /proc does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return -1 if fields[0] == "Z" else int(fields[19])


def new_execution_id() -> str:
    """An id that no other execution has, of characters that every name takes."""
    return secrets.token_hex(8)
