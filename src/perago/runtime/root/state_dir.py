"""The root folder for embedded servers, runs and workdirs: its lock, and the processes that own parts of it.

A process is identified by its pid and start time, since a pid alone may be reused.  Only one supervisor at a time can
hold a root's lock, and the system releases the lock when its holder dies.  The folders of dead processes are removed
when another process creates its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perago.errors import RuntimeConfigError
from perago.runtime.root.workdirs import remove_tree

LOCK = ".lock"
IGNORE = ".gitignore"
_OWNER = "owner.json"
_READS = 5


def process_identity(pid: int | None = None) -> dict[str, Any]:
    """Return the host, pid and start time of a process (this one by default)."""
    pid = os.getpid() if pid is None else pid
    return {"host": socket.gethostname(), "pid": pid, "pid_started": _start_time(pid)}


def is_alive(identity: Mapping[str, Any]) -> bool:
    """Return whether a process is still running. On another host it is assumed to be, because this host cannot know."""
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
    then, now = identity.get("pid_started"), _start_time(pid)
    return then is None or now is None or then == now


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended but has not been reaped."""
    return _start_time(pid) == -1


def children(read: Callable[[], set[int]] | None = None) -> set[int]:
    """Return the children of this process, zombies included, as /proc lists them."""
    read = read or _children_now
    found = read()
    for _ in range(_READS):
        # A child that ends while the list is read may hide another: two reads have to agree.
        second = read()
        if second == found:
            break
        found = second
    return found


def descendants(pid: int) -> list[int]:
    """Return the live descendants of a process, parents first, as /proc lists them."""
    found = sorted(_children_now(str(pid)))
    # The list grows while it is iterated.
    for one in found:
        found.extend(sorted(_children_now(str(one))))
    return [one for one in found if not is_zombie(one)]


def _children_now(process: str = "self") -> set[int]:
    found: set[int] = set()
    # This is called several times per attempt, so it avoids the overhead of `Path`.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            # A thread may have ended in the meantime.
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{thread}/children", "rb") as listed,
            ):
                found.update(map(int, listed.read().split()))
    return found


def _start_time(pid: int) -> int | None:
    """Return the start time in clock ticks since boot, -1 for a zombie, or None if /proc has no entry."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return -1 if fields[0] == "Z" else int(fields[19])


def new_execution_id() -> str:
    """Return a new unique execution id, made of characters that are valid in every kind of name."""
    return secrets.token_hex(8)


@contextmanager
def locked_root(root: Path) -> Iterator[None]:
    """Lock the root while the block runs. Raises `RuntimeConfigError`, naming the holder, if it is already locked."""
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
                "one another root by --root or PERAGO_WORKSPACE_ROOT"
            ) from None
        except OSError as error:
            raise RuntimeConfigError(
                f"workspace root {root} cannot be locked ({error.strerror}): give one on a local disk, by --root or "
                "PERAGO_WORKSPACE_ROOT"
            ) from error
        # The pid is for error messages only: the lock belongs to the open file, and works on a full disk too.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def is_locked(root: Path) -> bool:
    """Return whether a process holds the root's lock."""
    try:
        file = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def make_root(root: Path) -> None:
    """Create the root if it is missing, and have git ignore all of it.

    An existing folder is left unchanged: it may be a user's project.  Errors are ignored: they recur, and are reported,
    when something is written to the root.
    """
    with contextlib.suppress(OSError):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir()
        (root / IGNORE).write_text("*\n", encoding="utf-8")


@contextmanager
def made_root(root: Path) -> Iterator[None]:
    """Create the root, then run the block.

    Raises `RuntimeConfigError` if the root, or a file in the block, cannot be written.
    """
    make_root(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        why = "it is a file" if root.is_file() else error.strerror
        raise RuntimeConfigError(
            f"cannot keep anything in the root {root} ({why}): give a folder that can be written, by --root or PERAGO_ROOT"
        ) from error


def lives(folder: Path) -> bool:
    """Return whether the process to which a folder of `own_folder` belongs is alive."""
    try:
        owner = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(owner, dict) and is_alive(owner)


def own_folder(root: Path, kind: str) -> Path:
    """Create a folder for this process under `root`, and remove the folders of dead processes."""
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
