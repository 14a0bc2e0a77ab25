"""Sources as tools read them: our own, parsed once for all tests, and an author's, checked by mypy."""

from __future__ import annotations

import ast
import fcntl
import subprocess
import sys
from functools import cache
from pathlib import Path

import perago

OUR_FILES = f"{Path(perago.__file__).parent}/"
"""The installed package's folder, as tracebacks name it.  A checkout may be called perago, too."""


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a source; callers must not change it."""
    return ast.parse(path.read_text())


# --- mypy --------------------------------------------------------------------------------------------------------------


_CACHES = Path(__file__).parents[3] / ".mypy_cache" / "of-tests"


def run_mypy(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mypy in a folder as an author does, who has Perago installed."""
    # Runs with the same rules share a cache that stays in the checkout: mypy takes seconds for the libraries below Perago,
    # and they rarely change.
    cache = _CACHES / ("strict" if "--strict" in arguments else "usual")
    cache.mkdir(parents=True, exist_ok=True)
    # One at a time, so that the others find the cache filled.
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.run(
            [sys.executable, "-m", "mypy", f"--cache-dir={cache}", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )


def only_marked_lines_are_errors(sample: str, folder: Path, *options: str) -> None:
    """Check a sample with mypy: every line marked `# wrong` must be an error, and no other."""
    file = folder / "sample.py"
    file.write_text(sample)
    done = run_mypy(folder, *options, str(file))
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    wrong = {number for number, line in enumerate(sample.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, done.stdout + done.stderr
