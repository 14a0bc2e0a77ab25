"""A worker that inherits orphans, as process 1 of a container does, reaps them and leaves its own children alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The kernel gives orphans to the nearest ancestor that has asked for them, as it gives them to process 1.
ADOPTING = """
import ctypes, multiprocessing, os, subprocess, sys, time
from perago.runtime.process.process_setup import reap, reaping_orphans
from perago.runtime.root.state_dir import children, is_zombie

PR_SET_CHILD_SUBREAPER = 36

def leave():
    sys.exit(7)

def until(question):
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.01)

if __name__ == "__main__":
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
"""
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="Linux gives orphans to a subreaper")

pytestmark = pytest.mark.slow


def run(tmp_path, code: str) -> None:
    script = tmp_path / "adopting.py"
    script.write_text(ADOPTING + code)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_proc
def test_orphans_are_reaped_while_it_works(tmp_path) -> None:
    run(
        tmp_path,
        """
    with reaping_orphans(adopts=True, every=0.01):
        subprocess.run(["sh", "-c", "sleep 0.05 & sleep 0.05 &"], check=True)
        assert children(), "they are ours now"
        until(lambda: not children())
""",
    )


@needs_proc
def test_the_exit_status_of_an_executor_stays_its_slots(tmp_path) -> None:
    run(
        tmp_path,
        """
    ours = multiprocessing.get_context("spawn").Process(target=leave)
    ours.start()
    until(lambda: is_zombie(ours.pid))
    assert reap(reap(reap(set()))) == set()
    ours.join()
    assert ours.exitcode == 7
""",
    )


@needs_proc
def test_a_dead_child_is_reaped_only_when_it_is_seen_again(tmp_path) -> None:
    run(
        tmp_path,
        """
    just_started = subprocess.Popen(["true"])
    until(lambda: is_zombie(just_started.pid))
    seen = reap(set())
    assert seen == {just_started.pid} == children()
    assert reap(seen) == children() == set()
    just_started.returncode = 0
""",
    )


@needs_proc
def test_a_process_that_inherits_nothing_reaps_nothing(tmp_path) -> None:
    run(
        tmp_path,
        """
    with reaping_orphans(every=0.01):
        child = subprocess.Popen(["sh", "-c", "exit 3"])
        until(lambda: is_zombie(child.pid))
        time.sleep(0.1)
    assert child.wait() == 3
""",
    )
