"""The files of a new project: templates that ship with Perago, filled in with the project's names.

The rule: a template is the file itself with `{{word}}` where a name goes, so that reading it is reading the project.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from perago.runtime.project.name import ProjectName

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
    text = files("perago.runtime.project").joinpath("template", f"{template}.tmpl").read_text("utf-8")
    return _WORD.sub(lambda found: words[found[1]], text)
