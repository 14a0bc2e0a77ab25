"""The digest of a task's own code: what changes it, and what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TASKS = """
from pydantic import BaseModel
import helper
from pkg.inner import deep
from ns.mod import thing

class P(BaseModel): pass

def body(params: P) -> P:
    import late
    return params
"""
FILES = {
    "pyproject.toml": "",
    "app/tasks.py": TASKS,
    "app/helper.py": "import second",
    "app/second.py": "x = 1",
    "app/late.py": "x = 1",
    "app/unused.py": "x = 1",
    "app/pkg/__init__.py": "from . import sibling",
    "app/pkg/sibling.py": "",
    "app/pkg/inner.py": "from .sibling import *\ndeep = 1",
    "app/pkg/other.py": "x = 1",
    "app/ns/mod.py": "thing = 1",
    "app/data.csv": "1",
}
SHOW = """
import sys
from perago.declare.code_digest import code_digest
from perago.declare.discovery import import_target
print(code_digest(import_target(sys.argv[1]).body))
"""


def digest(folder: Path, target: str = "app/tasks.py", *, cwd: str = "") -> str:
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, target], cwd=folder / cwd, check=True, stdout=subprocess.PIPE, text=True
    )
    return shown.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "project"


@pytest.mark.parametrize(
    "changed",
    [
        "app/tasks.py",
        "app/helper.py",
        "app/second.py",
        "app/late.py",
        "app/pkg/__init__.py",
        "app/pkg/sibling.py",
        "app/pkg/inner.py",
        "app/ns/mod.py",
    ],
)
def test_what_the_task_imports_counts(project: Path, changed: str) -> None:
    before = digest(project)
    with (project / changed).open("a") as file:
        file.write("\n# changed\n")

    assert digest(project) != before


def test_what_it_does_not_import_does_not_count(project: Path) -> None:
    before = digest(project)
    for name in ("app/unused.py", "app/pkg/other.py", "app/data.csv"):
        (project / name).write_text("y = 2")

    assert digest(project) == before


def test_it_is_the_same_from_every_folder_and_in_another_place(project: Path, tmp_path: Path) -> None:
    before = digest(project)
    assert digest(project, "tasks.py", cwd="app") == before
    assert digest(project, "tasks", cwd="app") == before

    moved = project.rename(tmp_path / "moved")
    assert digest(moved) == before


def test_without_a_root_the_files_beside_the_task_count(project: Path) -> None:
    (project / "pyproject.toml").unlink()
    before = digest(project, "tasks.py", cwd="app")
    (project / "app/helper.py").write_text("y = 2")

    assert digest(project, "tasks.py", cwd="app") != before


def test_a_function_without_a_source_has_none() -> None:
    code = (
        "from perago.declare.code_digest import code_digest\ndef body(): ...\nprint(repr(code_digest(body)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)

    assert shown.stdout.strip() == "''"
