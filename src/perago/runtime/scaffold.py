"""The scaffold that `perago init` writes: names, files from templates, and the folder.

A project's name is the name of its folder.  The repository has the same name in lakeFS's form: 3 to 63 lower-case
letters, digits and hyphens.  Task and workflow names begin with the project's name as an identifier, since all projects
on a Conductor server share one namespace.

A template is the file itself, with a placeholder `{{word}}` for each name.

The folder is written completely or not at all, and never over existing files, so a full disk leaves no half-written
project behind.  The next `perago init` would refuse to touch one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from perago.errors import RuntimeConfigError
from perago.runtime.whole_folder import whole_folder

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{2,62}")
_RESERVED = "perago"
"""A name that no project may have: in its parent folder, Python would import the project instead of Perago itself."""


@dataclass(frozen=True, slots=True)
class ProjectName:
    """A project's name, its repository's name, and the prefix of its tasks' names."""

    name: str
    repository: str
    prefix: str


def project_name(text: str) -> ProjectName:
    """Return the names of a project.

    Raises `RuntimeConfigError`, with the rule and a suggestion, if the name is invalid.
    """
    if not _NAME.fullmatch(text):
        raise RuntimeConfigError(
            f"a project cannot be called {text!r}: a name has 3 to 63 letters, digits, '-' and '_', and begins with a "
            f"letter; try `perago init {_suggestion(text)}`"
        )
    if text.lower() == _RESERVED:
        raise RuntimeConfigError(
            f"a project cannot be called {text!r}: Python would take its folder for Perago itself; try "
            f"`perago init my-{_RESERVED}`"
        )
    small = text.lower()
    return ProjectName(text, small.replace("_", "-"), small.replace("-", "_"))


def _suggestion(text: str) -> str:
    """Return a valid project name that is similar to the given one."""
    last = text.rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFKD", last))
    kept = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-_")[:50]
    return kept if _NAME.fullmatch(kept) else f"my-{kept or 'project'}"


_TEMPLATES = {
    "README.md": "README.md",
    "Makefile": "Makefile",
    ".gitignore": "gitignore",
    "pyproject.toml": "pyproject.toml",
    "requirements.txt": "requirements.txt",
    "flow.py": "flow.py",
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
    """Return the text of every file, keyed by its path in the project.

    `version` is the oldest version of Perago that the project works with.
    """
    words = {
        "name": name.name,
        "repository": name.repository,
        "prefix": name.prefix,
        "version": version,
        **(_SPARK if spark else _PLAIN),
    }
    templates = {**_TEMPLATES, _SUMMARIZE: "summarize_spark.py" if spark else "summarize_plain.py"}
    return {path: _fill(templates[path], words) for path in sorted(templates)}


def _fill(template: str, words: Mapping[str, str]) -> str:
    text = files(__package__).joinpath("templates", f"{template}.tmpl").read_text("utf-8")
    return _WORD.sub(lambda found: words[found[1]], text)


def write_project(folder: Path, texts: Mapping[str, str]) -> None:
    """Create `folder` with these files.  The folder may already exist if it is empty.

    Raises `RuntimeConfigError` if the folder cannot be created.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RuntimeConfigError(f"{folder} already exists and is not a folder: choose another name")
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise RuntimeConfigError(
                f"{folder} already exists and is not empty: choose another name, or remove it first"
            )
        _write(folder, texts)
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot make {folder}: {error.strerror or error}; go to a folder that you may write to, then try again"
        ) from error


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    with whole_folder(folder) as temporary:
        for path, text in texts.items():
            file = temporary / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
