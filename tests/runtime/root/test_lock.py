from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.root.state_dir import locked_root

HOLD = """
import sys
from pathlib import Path
from perago.runtime.root.state_dir import locked_root
with locked_root(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_root_that_a_worker_holds_is_refused_with_the_pid_of_its_holder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        with pytest.raises(RuntimeConfigError, match=f"process {holder.pid}"), locked_root(tmp_path):
            pass
        holder.kill()


@pytest.mark.slow
def test_a_root_whose_holder_is_dead_is_free(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()

    with locked_root(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_root_that_cannot_be_written_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(RuntimeConfigError, match=r"not writable.*--root"), locked_root(tmp_path / "file"):
        pass
