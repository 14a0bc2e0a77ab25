"""Keeps the development branch of a root: a branch of a repository, named after the current Git branch.

The root's file `dev.json` has the default that `run` and `put` take, and which branches were created here for which Git
branch.  The rule: a branch that was not created for this Git branch is never taken for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perago.errors import LakeConflict, RuntimeConfigError
from perago.lake.base import ReadableLake, StagingLake
from perago.runtime.lake_lookup import check_no_internal_name
from perago.runtime.root.state_dir import made_root

FILE = "dev.json"
_SHARED = frozenset(["main", "master"])


@dataclass(frozen=True, slots=True)
class DevBranch:
    """A branch in a lake, and the Git branch that it was created for.  `lake` is `embedded` or lakeFS's address."""

    lake: str
    repository: str
    branch: str
    git_branch: str


@dataclass(frozen=True, slots=True)
class DevBranches:
    """The contents of `dev.json`."""

    default: DevBranch | None = None
    created: Sequence[DevBranch] = ()


def read_dev_branches(root: Path) -> DevBranches:
    """Return what a root's `dev.json` says.  Raises `RuntimeConfigError` if it is damaged."""
    try:
        text = (root / FILE).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return DevBranches()
    except OSError as error:
        raise RuntimeConfigError(f"cannot read {root / FILE}: {error.strerror or error}") from error
    try:
        read = json.loads(text)
        default = DevBranch(**read["default"]) if read["default"] else None
        return DevBranches(default, tuple(DevBranch(**one) for one in read["created"]))
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeConfigError(
            f"{root / FILE} is damaged: remove it, and run `perago dev REPO` again"
        ) from error


def save_dev_branches(root: Path, branches: DevBranches) -> None:
    """Write `dev.json` in one step."""
    text = json.dumps(
        {
            "default": asdict(branches.default) if branches.default else None,
            "created": [asdict(one) for one in branches.created],
        },
        indent=2,
    )
    with made_root(root):
        new = root / f"{FILE}.{os.getpid()}"
        new.write_text(f"{text}\n", encoding="utf-8")
        new.replace(root / FILE)


def git_branch(folder: Path) -> str | None:
    """Return the Git branch of a folder, or None if there is none: no Git, no repository, or a detached head."""
    try:
        return _git(folder, "symbolic-ref", "--quiet", "--short", "HEAD") or None
    except OSError:
        return None


def need_git_branch(folder: Path) -> str:
    """Return the Git branch of a folder.  Raises `RuntimeConfigError` if there is none to name a branch after."""
    try:
        found = git_branch(folder)
        inside = found is not None or _git(folder, "rev-parse", "--git-dir")
    except OSError:
        inside = ""
    if not inside:
        raise RuntimeConfigError(
            f"{folder} is in no Git repository, whose branch would name the development branch: go to one, or use "
            "`perago branch REPO NAME`"
        )
    if found is None:
        raise RuntimeConfigError(
            "Git's head is detached, so there is no branch to name one after: `git switch -c NAME` makes one"
        )
    if found in _SHARED:
        raise RuntimeConfigError(
            f"Git is on {found}, which is not a development branch: `git switch -c NAME` makes one"
        )
    return found


def _git(folder: Path, *arguments: str) -> str:
    """Return what a Git command prints, or "" if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def lake_branch_name(git: str) -> str:
    """Return the name of the branch for a Git branch: characters that lakes do not allow become `-`."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", git)
    if not re.match(r"[A-Za-z0-9_]", name) or name in _SHARED:
        raise RuntimeConfigError(
            f"Git branch {git!r} would become the branch {name!r}, which cannot be one: `git branch -m NAME` renames it"
        )
    check_no_internal_name(name)
    return name


def is_there(lake: ReadableLake, wanted: DevBranch, known: DevBranches) -> bool:
    """Return whether the branch exists.

    Raises `RuntimeConfigError` if there is a branch of that name that was not created for this Git branch.
    """
    if not any(one.name == wanted.branch for one in lake.branches(wanted.repository, wanted.branch)):
        return False
    if wanted not in known.created:
        raise _collision(wanted, known)
    return True


def create(lake: StagingLake, wanted: DevBranch, source: str, known: DevBranches) -> None:
    """Create the branch.  Raises `RuntimeConfigError` if somebody else has just taken the name."""
    try:
        lake.create_branch(wanted.repository, wanted.branch, source, hidden=False)
    except LakeConflict as taken:
        raise _collision(wanted, known) from taken


def with_default(known: DevBranches, wanted: DevBranch) -> DevBranches:
    """Return the contents of `dev.json` with a new default, which was created for its Git branch."""
    place = wanted.lake, wanted.repository, wanted.branch
    others = [one for one in known.created if (one.lake, one.repository, one.branch) != place]
    return DevBranches(wanted, (*others, wanted))


def _collision(wanted: DevBranch, known: DevBranches) -> RuntimeConfigError:
    place = wanted.lake, wanted.repository, wanted.branch
    other = next(
        (one.git_branch for one in known.created if (one.lake, one.repository, one.branch) == place), None
    )
    whose = f"was created for Git branch {other!r}" if other else "was not created by `perago dev` here"
    return RuntimeConfigError(
        f"branch {wanted.branch!r} of {wanted.repository!r} exists, and {whose}: rename the Git branch with "
        f"`git branch -m NAME`, or delete that branch with `perago branch {wanted.repository} {wanted.branch} --delete`"
    )
