"""What a new project may be called, and the names that follow from it.

A project's name is its folder.  The repository is the name as lakeFS takes it: small letters, digits and hyphens, 3 to 63 of
them.  Tasks and the workflow begin with the name as an identifier, since all projects of a Conductor share its names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perago.errors import RuntimeConfigError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{2,62}")
_OWN = "perago"
"""A folder of this name would hide the package from Python in the folder above."""


@dataclass(frozen=True, slots=True)
class ProjectName:
    """A project's name, and what its repository and its tasks are called."""

    name: str
    repository: str
    prefix: str


def project_name(text: str) -> ProjectName:
    """The names of a project, or an error that says what a name looks like and gives one."""
    if not _NAME.fullmatch(text):
        raise RuntimeConfigError(
            f"a project cannot be called {text!r}: a name has 3 to 63 letters, digits, '-' and '_', and begins with a "
            f"letter; try `perago init {_suggestion(text)}`"
        )
    if text.lower() == _OWN:
        raise RuntimeConfigError(
            f"a project cannot be called {text!r}: Python would take its folder for Perago itself; try "
            f"`perago init my-{_OWN}`"
        )
    small = text.lower()
    return ProjectName(text, small.replace("_", "-"), small.replace("-", "_"))


def _suggestion(text: str) -> str:
    """A name that is near and is right."""
    last = text.rstrip("/").rpartition("/")[2]
    kept = re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-_")[:50]
    return kept if _NAME.fullmatch(kept) else f"my-{kept or 'project'}"
