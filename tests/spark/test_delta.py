"""Delta tables, with the versions of Spark and Delta that fit each other: `delta_tables.py` runs in a separate pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from realservers.delta import delta_packages

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_delta_tables_live_in_workspaces() -> None:
    path = [str(delta_packages()), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Not those of the outer run: this is a separate run with one worker.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ["PYTHONPATH"] = os.pathsep.join(path)
    # Of this Spark too: made once, beside the packages' own place in the cache.
    subprocess.run([sys.executable, "-m", "perago.spark.appcds"], env=environ, check=False)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "delta_tables.py")],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
