"""Whether a run goes on, for others to see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.runs.record import holding, is_running

HOLD = """
import sys
from pathlib import Path
from perago.runtime.runs.record import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_run_goes_on_while_its_process_lives_and_no_longer(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert not is_running(tmp_path / "another")
        assert holder.stdout.readline() == b"held\n"
        assert is_running(tmp_path)
        with pytest.raises(RuntimeConfigError, match="is running in another process"):  # noqa: SIM117
            with holding(tmp_path, pause=lambda _: None):
                pass
        holder.kill()
        holder.wait()
        assert not is_running(tmp_path)


def test_a_look_does_not_keep_a_run_from_beginning(tmp_path: Path) -> None:
    with holding(tmp_path):
        assert is_running(tmp_path)
    assert not is_running(tmp_path)
    with holding(tmp_path):
        assert is_running(tmp_path)
