"""What mypy says of an author's files; of a sample, that just the lines marked `# wrong` are errors.

Runs with the same rules share a cache that stays in the checkout: the libraries below Perago take mypy seconds, and they
rarely change.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

_CACHES = Path(__file__).parents[3] / ".mypy_cache" / "of-tests"


def run_mypy(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mypy in a folder as an author does, who has Perago installed."""
    # What mypy keeps of a module goes by the rules that it was read with.
    cache = _CACHES / ("strict" if "--strict" in arguments else "usual")
    cache.mkdir(parents=True, exist_ok=True)
    # One after the other: what the first has read, the others need not.
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
    """Check the sample against Perago's own sources; every marked line must be an error, and no other."""
    file = folder / "sample.py"
    file.write_text(sample)
    done = run_mypy(folder, *options, str(file))
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    wrong = {number for number, line in enumerate(sample.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, done.stdout + done.stderr
