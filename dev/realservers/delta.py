"""Compatible versions of Spark and Delta, for tests of Delta tables.

Delta supports a new Spark only after a delay, so these packages are not the ones in `.venv`.  They are in a folder in
the cache that goes before `.venv` on PYTHONPATH.  Everything else, including Perago and pytest, still comes from
`.venv`.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from realservers.artifacts import once
from realservers.tools import run, say

PINS = Path(__file__).parents[1] / "delta-requirements.txt"


def delta_packages() -> Path:
    """Return the folder with PySpark and Delta, which are fetched on first use and whenever the pins change."""
    return once(f"delta-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}", _fetch)


def delta_jar() -> str:
    """Return the Maven coordinates of Delta for this Spark."""
    pins = dict(line.split("==") for line in PINS.read_text().split() if "==" in line)
    minor = ".".join(pins["pyspark"].split(".")[:2])
    return f"io.delta:delta-spark_{minor}_2.13:{pins['delta-spark']}"


def _fetch(part: Path) -> None:
    say("fetching PySpark and Delta for tests of Delta tables (500 MB)")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(
        # PySpark has no wheel, so it is built with the installed setuptools.
        [*pip, "--no-deps", "--no-build-isolation", "--target", str(part), "--requirement", str(PINS)],
        cwd=part,
        doing="fetching PySpark and Delta",
    )


if __name__ == "__main__":
    sys.stdout.write(f"{delta_packages()}\n")
