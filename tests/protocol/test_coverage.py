"""The protocol is small and decides everything: not one branch of it goes untested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# They read the sources of every module and call nothing of the protocol: traced, they take half of the time.
READ_SOURCES = "no_other_module or nothing_compares"


@pytest.mark.slow
def test_every_branch_of_the_protocol_is_covered(tmp_path: Path) -> None:
    here = Path(__file__).parent
    ran = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-m",
                "not slow",
                "-k",
                f"not ({READ_SOURCES})",
                str(here),
            ),
            *("--cov=perago.protocol", "--cov-branch", "--cov-fail-under=100", "--cov-report=term-missing"),
        ],
        cwd=here.parents[1],
        env={**os.environ, "COVERAGE_FILE": str(tmp_path / "coverage")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
