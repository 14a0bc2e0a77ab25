"""What a new project may be called, and the names that follow from it.

A project's name is its folder.  The repository is the name as lakeFS takes it: small letters, digits and hyphens, 3 to 63 of
them.  Tasks and the workflow begin with the name as an identifier, since all projects of a Conductor share its names.

The files of a new project: templates that ship with Perago, filled in with the project's names.

The rule: a template is the file itself with `{{word}}` where a name goes, so that reading it is reading the project.

Writing a new project's folder: all of it or nothing, and never over what is there.

The files are written into a folder beside the project's own, which then takes its name in one step.  So a full disk leaves
no half project behind, which the next try would refuse to touch.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

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


_TEMPLATES = {
    "README.md": "README.md",
    "Makefile": "Makefile",
    ".gitignore": "gitignore",
    "pyproject.toml": "pyproject.toml",
    "requirements.txt": "requirements.txt",
    "workflow.json": "workflow.json",
    "tasks/__init__.py": "tasks_init.py",
    "tasks/clean.py": "clean.py",
    "data/raw/monday.csv": "monday.csv",
    "data/raw/tuesday.csv": "tuesday.csv",
    "tests/test_clean.py": "test_clean.py",
    "tests/test_summarize.py": "test_summarize.py",
}
_SUMMARIZE = "tasks/summarize.py"
_WORD = re.compile(r"\{\{(\w+)\}\}")
_SPARK = {
    "requirement": "perago[spark]",
    "imports": "pyspark, pytest",
    "summarize_kind": "a Spark task",
    "spark_note": " The first test starts Spark, which takes a while.",
    "java_note": " Spark needs a Java 17 or later on `PATH` or in `JAVA_HOME`; `perago doctor` says whether it is there.",
}
_PLAIN = {
    "requirement": "perago",
    "imports": "pytest",
    "summarize_kind": "a second plain task",
    "spark_note": "",
    "java_note": "",
}


def project_files(name: ProjectName, *, spark: bool, version: str) -> dict[str, str]:
    """The text of every file, by its path in the project; `version` is the oldest Perago that it needs."""
    words = {
        "name": name.name,
        "repository": name.repository,
        "prefix": name.prefix,
        "version": version,
        **(_SPARK if spark else _PLAIN),
    }
    templates = {**_TEMPLATES, _SUMMARIZE: "summarize_spark.py" if spark else "summarize_plain.py"}
    return {path: _filled(templates[path], words) for path in sorted(templates)}


def _filled(template: str, words: Mapping[str, str]) -> str:
    text = files("perago.runtime").joinpath("templates", f"{template}.tmpl").read_text("utf-8")
    return _WORD.sub(lambda found: words[found[1]], text)


def write_project(folder: Path, texts: Mapping[str, str]) -> None:
    """Make `folder` with these files; it may exist if it is empty."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RuntimeConfigError(f"{folder} is there already and is not a folder: choose another name")
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise RuntimeConfigError(
                f"{folder} is there already and is not empty: choose another name, or remove it first"
            )
        _write(folder, texts)
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot make {folder}: {error.strerror or error}; go to a folder that you may write to, then try again"
        ) from error


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for path, text in texts.items():
            file = making / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        # A temporary folder is closed to others; a project is as open as any folder that its owner makes.
        making.chmod(0o777 & ~_umask())
        # Onto an empty folder this works, onto any other it fails, also if it was filled just now.
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
