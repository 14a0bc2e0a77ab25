"""The throwaway state folder of a set of servers: addresses, keys, pids, logs and the servers' own data.

A checkout has one unnamed set, and any number of sets that are named by `PERAGO_DEV_SET`.

The rule: the folder belongs to us alone (mode 0700, our user), and its `servers.json` is the single source of truth for
ports and keys.  This file is written before the first server starts, and removed with the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import secrets
import shutil
import socket
import stat
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from realservers.tools import DevError

CHECKOUT = Path(__file__).resolve().parents[2]
SET_NAME = re.compile(r"[a-z0-9]+")
_MEMORY = Path("/dev/shm")
_ROOMY_BYTES = 8 * 1024**3


@dataclass(frozen=True, slots=True)
class State:
    """The ports and keys that one `up` chose for the throwaway servers.

    A production set also has a database and an S3 store, with their own ports and secret.
    """

    lakefs_port: int
    conductor_port: int
    access_key_id: str
    secret_access_key: str
    production: bool = False
    postgres_port: int = 0
    store_port: int = 0
    store_key_id: str = ""
    backing_secret: str = ""

    @property
    def lakefs_url(self) -> str:
        return f"http://127.0.0.1:{self.lakefs_port}"

    @property
    def conductor_url(self) -> str:
        return f"http://127.0.0.1:{self.conductor_port}"

    @property
    def store_url(self) -> str:
        return f"http://127.0.0.1:{self.store_port}"


def set_name() -> str:
    """Return the name of the selected set of servers. It is empty for the checkout's unnamed set."""
    name = os.environ.get("PERAGO_DEV_SET", "")
    if name and not SET_NAME.fullmatch(name):
        raise DevError(f"{name!r} is no name for a set of servers: use lower-case letters and digits")
    return name


def set_mark() -> str:
    """Return a short unique name for this set, so that no two checkouts or sets share servers."""
    return _checkout_mark() + (f"-{set_name()}" if set_name() else "")


def state_folder() -> Path:
    """Return the folder to which this set's servers write everything."""
    # The mark of the set is in the name, so that `down` can find what `up` created.
    folders = [parent / f"{_prefix()}{set_mark()}" for parent in _parents()]
    return next(filter(os.path.lexists, folders), folders[0])


def named_sets() -> list[str]:
    """Return the names of this checkout's named sets that have a state folder."""
    prefix = f"{_prefix()}{_checkout_mark()}-"
    found = [path for parent in _parents() for path in parent.glob(f"{prefix}*")]
    return sorted(filter(SET_NAME.fullmatch, {path.name.removeprefix(prefix) for path in found}))


def _checkout_mark() -> str:
    return hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:10]


def _prefix() -> str:
    return f"perago-dev-{os.getuid()}-"


def _parents() -> list[Path]:
    """Return the folders that may contain state folders. A new one is created in the first.

    Tests ask for a folder in memory (PERAGO_DEV_IN_MEMORY), if it is large enough: the servers wait for the disk at
    every change, and none of their data needs to outlive the tests.
    """
    temporary, memory = Path(tempfile.gettempdir()).resolve(), memory_folder()
    if memory is None:
        return [temporary]
    return [memory, temporary] if os.environ.get("PERAGO_DEV_IN_MEMORY") else [temporary, memory]


def memory_folder() -> Path | None:
    """Return a folder in memory, or None if there is none that is large enough or if TMPDIR is set."""
    try:
        room = os.statvfs(_MEMORY)
    except OSError:
        return None
    roomy = room.f_blocks * room.f_frsize >= _ROOMY_BYTES and os.access(_MEMORY, os.W_OK)
    return _MEMORY if roomy and not os.environ.get("TMPDIR") else None


def load() -> State | None:
    """Return the state of an earlier `up`, or None."""
    try:
        text = (_owned(state_folder()) / "servers.json").read_text()
    except FileNotFoundError:
        return None
    return State(**json.loads(text))


def create(*, production: bool = False) -> State:
    """Create a new state folder, with new ports and keys."""
    remove()
    folder = state_folder()
    folder.mkdir(mode=0o700)
    ports = free_ports(4)
    state = State(
        lakefs_port=ports[0],
        conductor_port=ports[1],
        access_key_id=_key_id(),
        secret_access_key=secrets.token_urlsafe(30),
    )
    if production:
        state = replace(
            state,
            production=True,
            postgres_port=ports[2],
            store_port=ports[3],
            store_key_id=_key_id(),
            backing_secret=secrets.token_urlsafe(30),
        )
    part = folder / "servers.json.part"
    part.touch(mode=0o600)
    part.write_text(json.dumps(asdict(state), indent=2) + "\n")
    part.rename(folder / "servers.json")
    return state


def _key_id() -> str:
    return "AKIA" + secrets.token_hex(8).upper()


def remove() -> None:
    """Remove the state folder, if it exists."""
    try:
        shutil.rmtree(_owned(state_folder()))
    except FileNotFoundError:
        return


def _owned(folder: Path) -> Path:
    # Anyone can write to the temporary folder: a link, or another user's folder with our name, must not be used.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise DevError(f"{folder} is not a folder of this user: remove it, or set TMPDIR to another place")
    return folder


def free_ports(count: int) -> list[int]:
    """Return ports on which no process is listening now."""
    # Below the ephemeral port range, so that a restarted server finds its port free.
    candidates = random.SystemRandom().sample(range(20000, 32000), 200)
    free = [port for port in candidates if port_is_free(port)][:count]
    if len(free) < count:
        raise DevError("no free port found between 20000 and 32000 on 127.0.0.1")
    return free


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
