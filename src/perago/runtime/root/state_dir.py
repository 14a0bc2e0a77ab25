"""Which process is which, and whose child: a pid alone may be reused, a pid and its start time are not.

One supervisor per workspace root, by a lock that the system gives back when its holder dies.

The root folder itself: where the embedded servers, runs and workdirs are kept.

Folders that belong to one process each; those of the dead are removed when the next one is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from perago.errors import RuntimeConfigError
from perago.runtime.root.workdirs import remove_tree

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


LOCK = ".lock"


@contextmanager
def locked_root(root: Path) -> Iterator[None]:
    """Hold the root for as long as the block runs; `RuntimeConfigError` names the process that has it."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RuntimeConfigError(
            f"workspace root {root} is not writable ({error.strerror}): give one that is, by --root, PERAGO_ROOT or "
            "PERAGO_WORKSPACE_ROOT"
        ) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise RuntimeConfigError(
                f"workspace root {root} is in use by another worker (process {holder}): stop that one, or give this "
                "one a root of its own by --root or PERAGO_WORKSPACE_ROOT"
            ) from None
        except OSError as error:
            raise RuntimeConfigError(
                f"workspace root {root} cannot be locked ({error.strerror}): give one on a local disk, by --root or "
                "PERAGO_WORKSPACE_ROOT"
            ) from error
        # Who waits for the lock reads the pid; the lock itself goes with the open file, and needs no room on the disk.
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


IGNORE = ".gitignore"


def make_root(root: Path) -> None:
    """Make the root, if it is not there, and have git ignore all of it.

    A folder that somebody else made is left as it is: it may be a project of theirs.  What goes wrong here goes wrong
    again, and is told, where something is to be kept in the root.
    """
    with suppress(OSError):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir()
        (root / IGNORE).write_text("*\n", encoding="utf-8")


@contextmanager
def made_root(root: Path) -> Iterator[None]:
    """Make the root for what keeps its state there; one that takes nothing is told with the way to another one."""
    make_root(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        why = "it is a file" if root.is_file() else error.strerror
        raise RuntimeConfigError(
            f"cannot keep anything in the root {root} ({why}): give a folder that can be written, by --root or PERAGO_ROOT"
        ) from error


_OWNER = "owner.json"


def own_folder(root: Path, kind: str) -> Path:
    """A folder of this process's own below `root`; those of dead processes go."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in root.iterdir():
        try:
            owner = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(owner, dict) and not is_alive(owner):
            with contextlib.suppress(OSError):
                remove_tree(folder)
    mine = root / f"{kind}-{os.getpid()}-{os.urandom(4).hex()}"
    mine.mkdir(mode=0o700)
    (mine / _OWNER).write_text(json.dumps(process_identity()), encoding="utf-8")
    return mine
