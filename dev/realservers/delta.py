"""The versions of Spark and Delta that fit each other, for tests of Delta tables.

Delta follows Spark with a delay, so these packages are not those of `.venv`.  They are a folder in the cache that goes
before `.venv` on PYTHONPATH; everything else, Perago and pytest included, comes from `.venv` as ever.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from realservers.artifacts import once
from realservers.tools import run, say

PINS = Path(__file__).parents[1] / "delta-requirements.txt"


def delta_packages() -> Path:
    """The folder with PySpark and Delta, fetched on first use and whenever the pins change."""
    return once(f"delta-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}", _fetch)


def delta_jar() -> str:
    """The Maven coordinates of Delta for this Spark."""
    pins = dict(line.split("==") for line in PINS.read_text().split() if "==" in line)
    minor = ".".join(pins["pyspark"].split(".")[:2])
    return f"io.delta:delta-spark_{minor}_2.13:{pins['delta-spark']}"


def _fetch(part: Path) -> None:
    say("fetching PySpark and Delta for tests of Delta tables (500 MB)")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(
        # PySpark has no wheel; it is built with the setuptools that is there.
        [*pip, "--no-deps", "--no-build-isolation", "--target", str(part), "--requirement", str(PINS)],
        cwd=part,
        doing="fetching PySpark and Delta",
    )


if __name__ == "__main__":
    sys.stdout.write(f"{delta_packages()}\n")
