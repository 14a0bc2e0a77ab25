"""What mypy says of a sample, as an author's editor would show it: just the lines marked `# wrong` are errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import perago


def only_marked_lines_are_errors(sample: str, folder: Path, *options: str) -> None:
    """Check the sample against Perago's own sources; every marked line must be an error, and no other."""
    file = folder / "sample.py"
    file.write_text(sample)
    cache = f"--cache-dir={folder / 'cache'}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, cache, "--follow-imports=silent", str(file)],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(Path(perago.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    wrong = {number for number, line in enumerate(sample.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, done.stdout + done.stderr
