"""`make demo` on a machine that is set up: how long a first-time user waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import Row
from bench.harness import timed

NAME = "The demonstration (`make demo`)"
SERVERS = False
DEMO = Path(__file__).parents[1] / "dev" / "demo"


def run() -> list[Row]:
    """Time one whole run, with the archive of Spark's classes that `make setup` creates."""
    subprocess.run([sys.executable, "-m", "perago.spark.appcds"], check=False)
    seconds = timed(lambda: subprocess.run([DEMO], check=True, stdout=sys.stderr))
    return [Row("from the command to its end", seconds, "s", 60)]
