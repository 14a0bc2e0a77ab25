"""With CI=true any skip fails the run; without it a skip is a skip.

Two runs of pytest over the same small files below our conftest, one with CI=true and one without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "test_skipif.py": """
import pytest
@pytest.mark.skipif(True, reason="not on this machine")
def test_one(): ...
""",
    "test_skip_in_body.py": """
import pytest
def test_one(): pytest.skip("not on this machine")
""",
    "test_importorskip.py": """
import pytest
pytest.importorskip("there_is_no_such_module", reason="not on this machine")
def test_one(): ...
""",
    "test_server.py": """
import pytest
@pytest.fixture
def mine(lakefs_server): ...
def test_one(mine): ...
""",
    "test_xfail.py": """
import pytest
@pytest.mark.xfail(strict=True, reason="not on this machine")
def test_one(): assert False
""",
    "test_plain.py": """
def test_one(): ...
""",
}
SKIPPING = ["test_skipif.py", "test_skip_in_body.py", "test_importorskip.py", "test_server.py"]
HERE = Path(__file__).parent
PATHS = f"{HERE.parent} {HERE.parent / 'dev'}"
INI = f"[pytest]\naddopts = --strict-markers\npythonpath = {PATHS}\nmarkers =\n    servers: needs servers\n"

pytestmark = pytest.mark.slow


def run_pytest(folder: Path, *arguments: str, ci: str | None) -> subprocess.CompletedProcess[str]:
    """Run the files below our conftest, without any server's environment."""
    shutil.copy(HERE / "conftest.py", folder)
    (folder / "pytest.ini").write_text(INI)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    unset = ("LAKECTL_", "CONDUCTOR_", "PERAGO_", "CI", "PYTEST_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(unset)}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"} | ({"CI": ci} if ci else {})
    command = [sys.executable, "-m", "pytest", "-rA", "--continue-on-collection-errors", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def in_ci(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return run_pytest(tmp_path_factory.mktemp("ci"), ci="true")


@pytest.fixture(scope="module")
def on_a_laptop(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return run_pytest(tmp_path_factory.mktemp("laptop"), ci=None)


@pytest.mark.parametrize("name", SKIPPING)
def test_a_skip_is_a_failure_in_ci_and_says_why(name: str, in_ci: subprocess.CompletedProcess[str]) -> None:
    summary = in_ci.stdout.partition("short test summary info")[2].splitlines()

    [line] = [line for line in summary if name in line]

    assert line.startswith(("FAILED", "ERROR"))
    assert "a skip is a failure with CI=true" in in_ci.stdout
    assert in_ci.returncode == 1


def test_no_skip_is_left_in_ci(in_ci: subprocess.CompletedProcess[str]) -> None:
    closing = in_ci.stdout.splitlines()[-1]

    assert "1 failed, 1 passed, 1 xfailed, 3 errors" in closing
    assert "skipped" not in closing


def test_a_skip_is_a_skip_elsewhere(on_a_laptop: subprocess.CompletedProcess[str]) -> None:
    assert "1 passed, 4 skipped, 1 xfailed" in on_a_laptop.stdout
    assert on_a_laptop.returncode == 0


def test_a_test_that_takes_a_server_through_another_fixture_is_marked(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "-m", "servers", ci=None)

    assert "collected 5 items / 4 deselected" in done.stdout
    assert "test_server.py" in done.stdout
