"""PostgreSQL for a production set, with a database for each server that needs one.

It listens only on 127.0.0.1, and always requires the password.  PostgreSQL refuses to run as root.  If we are root, it
runs as `nobody`, who owns its data and keeps only one of root's capabilities: ignoring file modes, since caches and
state folders are closed to other users.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from realservers.artifacts import postgres_folder
from realservers.state import State, state_folder
from realservers.tools import DevError, run

USER = "perago"
_NOBODY = 65534
_LEAVING_SECONDS = 15


def command(state: State) -> list[str]:
    """Return the command that starts PostgreSQL. Creates its data folder if there is none."""
    data = _data_folder()
    if not (data / "PG_VERSION").exists():
        _make_data(data, state)
    _wait_for_leavers(data)
    # No process uses the folder any more, but PostgreSQL would take a zombie's pid for a running server.
    (data / "postmaster.pid").unlink(missing_ok=True)
    where = ["-h", "127.0.0.1", "-p", str(state.postgres_port), "-c", "unix_socket_directories="]
    return [
        *_as_whom(),
        str(postgres_folder() / "postgres"),
        "-D",
        str(data),
        *where,
        "-c",
        "max_connections=200",
    ]


def version(state: State, timeout: float) -> str | None:
    """Return the major version that PostgreSQL reports, or None if it does not answer."""
    try:
        said = _sql(state, "postgres", "show server_version", timeout=timeout)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.split(".")[0] or None


def ensure(state: State, name: str) -> str:
    """Create a database with this name if there is none. Returns its address, without user and password."""
    if not _sql(state, "postgres", f"select 1 from pg_database where datname = '{name}'"):
        _sql(state, "postgres", f'create database "{name}"')
    return f"127.0.0.1:{state.postgres_port}/{name}"


def drop(state: State, name: str) -> None:
    """Remove a database with all its contents, even if clients are connected."""
    _sql(state, "postgres", f'drop database if exists "{name}" with (force)')


def _sql(state: State, database: str, statement: str, *, timeout: float = 60) -> str:
    psql = [str(postgres_folder() / "psql"), "--no-psqlrc", "--tuples-only", "--no-align", "--quiet"]
    where = ["-h", "127.0.0.1", "-p", str(state.postgres_port), "-U", USER, "-d", database]
    done = subprocess.run(
        [*psql, *where, "-c", statement],
        env={"PATH": os.defpath, "PGPASSWORD": state.backing_secret, "PGCONNECT_TIMEOUT": "5"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=True,
    )
    return done.stdout.strip()


def _data_folder() -> Path:
    return state_folder() / "postgres" / "data"


def _make_data(data: Path, state: State) -> None:
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True, mode=0o700)
    if _as_whom():
        os.chown(data, _NOBODY, _NOBODY)
    password = data.parent / "password"
    password.touch(mode=0o600)
    password.write_text(state.backing_secret)
    make = [str(postgres_folder() / "initdb"), "-D", str(data), "-U", USER, "--pwfile", str(password)]
    rules = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
    try:
        run([*_as_whom(), *make, *rules], cwd=data.parent, doing="making PostgreSQL's data folder")
    finally:
        password.unlink()


def _as_whom() -> list[str]:
    """Return the prefix that keeps a command from running as root. It is empty if we are not root."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise DevError(
            "setpriv is missing: PostgreSQL does not run as root; install your system's package `util-linux`, or "
            "run dev/servers as another user"
        )
    user = [f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    # The last option makes access(2) honor the capability as well.
    passing = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
    return [setpriv, *user, *passing]


def _wait_for_leavers(data: Path) -> None:
    """Wait for the processes of a killed PostgreSQL to exit on their own.  A new one does not start before that."""
    until = time.monotonic() + _LEAVING_SECONDS
    while any(_works_in(data, process) for process in Path("/proc").glob("[0-9]*")):
        if time.monotonic() > until:
            raise DevError(
                f"processes of a killed PostgreSQL still work in {data}: end them, then run it again"
            )
        time.sleep(0.05)


def _works_in(data: Path, process: Path) -> bool:
    try:
        return (process / "cwd").readlink() == data
    except OSError:
        return False
