"""Installation: no text sends people to the package index, where another product has the name."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from perago.errors import install_extra
from tests.support.docs.pages import ROOT

# The bare name, which pip looks up on the index: no version (==, >=), no address (@), no path and no file around it.
FROM_THE_INDEX = re.compile(
    r"(?:\bpip3? install\b[^\n`]*?|\binstall )(?<![\w/.\-])['\"]?perago(?:\[[\w,]+\])?(?![\w\-/\[]|[=<>~!]=|\s*@|\.\w)"
)


TASK = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task


class Nothing(BaseModel): ...


@task(name="greet", owner_email="a@example.com", workspace=WorkspaceSpec())
def greet(workspace: Path, params: Nothing) -> Nothing:
    return Nothing()
"""


def texts() -> list[Path]:
    """Every text that a user may read: documentation, examples, and sources with their templates."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing += ["docs", "src", "examples", "*.md"]
    names = subprocess.run(listing, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [ROOT / name for name in names.splitlines() if not name.endswith((".png", ".svg", ".ico"))]
    return [path for path in found if path.exists()]


def test_no_text_tells_people_to_install_perago_from_the_index() -> None:
    told = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in texts()
        for found in FROM_THE_INDEX.finditer(path.read_text("utf-8"))
    ]

    assert told == []


@pytest.mark.parametrize(
    "text",
    [
        "`pip install perago`",
        "pip install perago pytest",
        "pip install 'perago[ui]'",
        "python -m pip install --quiet perago[spark]",
        "install perago[spark]",
        "pip install perago.",
    ],
)
def test_the_index_is_recognized(text: str) -> None:
    assert FROM_THE_INDEX.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'perago[ui]==1.0.0.dev0'",
        "pip install 'perago[spark] @ file:///path/to/the.whl'",
        "pip install --quiet wheels/perago-*.whl",
        "pip install ~/perago",
        "pip install '/path/to/checkout[ui]'",
    ],
)
def test_other_sources_are_allowed(text: str) -> None:
    assert not FROM_THE_INDEX.search(text)


@pytest.mark.parametrize("extra", ["spark", "ui", "diff"])
def test_the_command_that_errors_print_keeps_this_perago(extra: str) -> None:
    # Nothing is looked up on an index: this environment has what the extras need.
    pasted = [*shlex.split(install_extra(extra)), "--dry-run", "--no-index"]

    done = subprocess.run(pasted, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert re.search(r"^Requirement already satisfied: perago\b.*==", done.stdout, re.MULTILINE)
    assert "Would install" not in done.stdout


def test_the_command_names_the_checkout_where_perago_is_not_installed() -> None:
    # -S: without site-packages, and so without what is known of installed packages.
    script = "from importlib.util import *;"
    script += f"spec = spec_from_file_location('errors', {str(ROOT / 'src/perago/errors.py')!r});"
    script += (
        "errors = module_from_spec(spec); spec.loader.exec_module(errors); print(errors.install_extra('ui'))"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False
    )

    assert shlex.split(done.stdout)[-1] == f"{ROOT}[ui]", done.stderr


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("pyspark", ["map", "tasks.py:greet", "rows.csv", "-o", "out.csv"], "spark"),
        ("pyspark", ["start", "tasks.py", "--local", "--register", "--engine", "spark"], "spark"),
        ("starlette", ["ui"], "ui"),
        ("starlette", ["run", "flow.json", "--tasks", "tasks.py", "--ui"], "ui"),
        ("duckdb", ["diff", "songs", "main", "dev", "plays", "--rows"], "diff"),
    ],
    ids=lambda one: " ".join(one[:1]) if isinstance(one, list) else one,
)
def test_a_command_without_its_extra_says_how_to_install_it(
    missing: str, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(TASK)
    (tmp_path / "rows.csv").write_text("repository\nsongs\n")
    script = f"import sys; sys.modules[{missing!r}] = None; from perago.cli import app; app({arguments!r})"

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("error: ")
    assert last.endswith(f"run `{install_extra(extra)}`")
