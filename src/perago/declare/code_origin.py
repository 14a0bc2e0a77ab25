"""Finds out which code a process has loaded, and what is installed beside it.

    the task's module                                    its code
    in a Git project                                     the commit, `+dirty` if a loaded or tracked file differs
    below `site-packages`, in a distribution             `name==version`
    Perago's own, which opens or publishes a run          `perago==version`
    anything else                                        `sha256:…`, a digest of its sources

The rule: it is computed once in a process, early, because the process goes on running what it has loaded, and it never
fails or delays an attempt.  Git gets two seconds, and is told to change nothing and to run none of the repository's own
programs.  Only its commit id is used, never an address or a setting.
"""

from __future__ import annotations

import inspect
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from perago.declare.code_digest import code_digest, project_root
from perago.declare.sources import is_user_file
from perago.declare.task import TaskDefinition
from perago.protocol.provenance import DIRTY, SHORT_DIGEST, Provenance, packages_digest

log = logging.getLogger("perago.tasks")

GIT_SECONDS = 2.0
_MOST_FILES = 1000
_PERAGO = Path(__file__).resolve().parents[1]
_INFO = ".dist-info"
_EGG = ".egg-info"
_known: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()


def remember_code(tasks: Iterable[TaskDefinition]) -> None:
    """Find out the code of these tasks and the installed distributions now, before the files change."""
    for task in tasks:
        provenance_of(task)


def provenance_of(task: TaskDefinition, image: str = "") -> Provenance:
    """Return the code and the environment of a task's attempts in this process."""
    return Provenance(code_of(task.fn), _packages_digest(), _runtime(spark=task.kind == "spark"), image)


def code_of(fn: Callable[..., Any]) -> str:
    """Return the code that a function belongs to, or "" if nothing is known."""
    try:
        fn = inspect.unwrap(fn)
        if fn not in _known:
            _known[fn] = _code(fn)
        return _known[fn]
    except Exception as error:
        log.debug("the code of %r is not known: %s", fn, error)
        return ""


@lru_cache(1)
def installed_packages() -> tuple[str, ...]:
    """Return the distributions on this process's path as `name==version`, sorted.

    Names and versions come from the names of folders: reading their files would take longer than loading a task.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        with suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.name.endswith((_INFO, _EGG)) and (known := _name_and_version(Path(entry.path))):
                    # As for imports, the first one on the path counts.
                    found.setdefault(*known)
    return tuple(sorted(f"{name}=={version}" for name, version in found.items()))


@lru_cache(1)
def _packages_digest() -> str:
    return packages_digest(installed_packages())


def _name_and_version(info: Path) -> tuple[str, str] | None:
    name, dash, version = info.name.removesuffix(_INFO).partition("-")
    if info.suffix == _EGG or not dash:
        with suppress(Exception):
            said = metadata.PathDistribution(info)
            name, version = said.metadata["Name"], said.version
    name, version = ("-".join(str(text).split()) for text in (name, version))
    return (name.replace("_", "-").replace(".", "-").lower(), version) if name and version else None


@lru_cache(2)
def _runtime(*, spark: bool) -> str:
    versions = [f"perago {_version('perago')}", f"python {platform.python_version()}"]
    return ", ".join([*versions, f"pyspark {_version('pyspark')}"] if spark else versions)


def _version(name: str) -> str:
    loaded = getattr(sys.modules.get(name), "__version__", None)
    if isinstance(loaded, str):
        return loaded
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _code(fn: Callable[..., Any]) -> str:
    code = getattr(fn, "__code__", None)
    file = Path(code.co_filename).resolve() if code is not None else None
    if file is not None and is_user_file(str(file)) and file.is_file():
        if commit := _git_code(project_root(file), file):
            return commit
    elif file is not None and file.is_relative_to(_PERAGO):
        return f"perago=={_version('perago')}"
    elif file is not None and (distribution := _distribution(file)):
        return distribution
    digest = code_digest(fn)
    return f"sha256:{digest[:SHORT_DIGEST]}" if digest else ""


# --- Git -------------------------------------------------------------------------------------------------------------


@lru_cache(256)
def _git_code(root: Path, file: Path) -> str:
    """Return the commit of a project, or "" if it is in no Git repository or Git does not answer."""
    if not any((folder / ".git").exists() for folder in (root, *root.parents)):
        return ""
    commit, changed = _git_status(root)
    if not commit:
        return ""
    loaded = {str(file), *_loaded_below(root)}
    dirty = changed or bool(loaded - _tracked(root, sorted(loaded)))
    return commit + DIRTY if dirty else commit


@lru_cache(64)
def _git_status(root: Path) -> tuple[str, bool]:
    """Return the commit that is checked out, and whether a tracked file of the project differs."""
    said = _git(root, "status", "--porcelain=v2", "--branch", "--untracked-files=no", "--", ".")
    lines = (said or "").splitlines()
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), "")
    # Before the first commit, Git says `(initial)`.
    return ("" if commit.startswith("(") else commit), any(not line.startswith("# ") for line in lines)


def _tracked(root: Path, files: list[str]) -> set[str]:
    said = _git(root, "ls-files", "-z", "--", *files)
    return {str(root / name) for name in (said or "").split(chr(0)) if name}


def _loaded_below(root: Path) -> Iterator[str]:
    """Yield the files of the modules that this process has loaded from a project."""
    files = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    below = sorted(file for file in files if file.startswith(f"{root}{os.sep}") and is_user_file(file))
    return iter(below[:_MOST_FILES])


def _git(root: Path, *arguments: str) -> str | None:
    """Return what Git says, or None if it fails, is not installed or takes too long."""
    # Set inside a Git hook, they would name another repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "--literal-pathspecs", *arguments],
            cwd=root,
            env={**environ, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.debug("git %s in %s: %s", arguments[0], root, error)
        return None
    return os.fsdecode(done.stdout)


# --- installed distributions -----------------------------------------------------------------------------------------


def _distribution(file: Path) -> str:
    """Return the distribution that installed a file, as `name==version`, or "" if none did."""
    for folder in file.parents:
        infos = list(folder.glob(f"*{_INFO}/RECORD"))
        if infos:
            break
    else:
        return ""
    line = f"{file.relative_to(folder).as_posix()},".encode()
    for record in infos:
        with suppress(OSError):
            content = record.read_bytes()
            if content.startswith(line) or b"\n" + line in content:
                known = _name_and_version(record.parent)
                return "==".join(known) if known else ""
    return ""
