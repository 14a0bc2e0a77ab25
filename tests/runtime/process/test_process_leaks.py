"""Process leaks: what a body leaves running in its executor, and which of it requires a fresh one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from perago.runtime.process.process_leaks import ProcessLeaks


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    """The event that the threads of a test wait for."""
    event = threading.Event()
    yield event
    event.set()


def test_a_body_that_leaves_nothing_spoils_nothing() -> None:
    left = ProcessLeaks()

    with left.watched():
        thread = threading.Thread(target=print)
        thread.start()
        thread.join()
        subprocess.run(["true"], check=True)

    assert left.unusable_reason() == ""


def test_a_thread_that_still_runs_is_named(let_go: threading.Event) -> None:
    left = ProcessLeaks()

    with left.watched():
        threading.Thread(target=let_go.wait, name="worker-7").start()

    assert left.unusable_reason() == "the task left a thread running: worker-7"


def test_a_thread_that_ends_before_the_result_is_handed_over_does_not_count(let_go: threading.Event) -> None:
    left = ProcessLeaks()
    with left.watched():
        thread = threading.Thread(target=let_go.wait)
        thread.start()

    let_go.set()
    thread.join()

    assert left.unusable_reason() == ""


def test_threads_from_before_the_body_and_daemon_threads_do_not_count(let_go: threading.Event) -> None:
    left = ProcessLeaks()
    threading.Thread(target=let_go.wait).start()

    with left.watched():
        threading.Thread(target=let_go.wait, daemon=True).start()

    assert left.unusable_reason() == ""


def test_a_pool_counts_while_it_works_and_not_while_it_waits(let_go: threading.Event) -> None:
    left = ProcessLeaks()

    with left.watched():
        pool = ThreadPoolExecutor(2, "kept-pool")
        pool.submit(int).result()
        works = pool.submit(let_go.wait)

    assert left.unusable_reason().startswith("the task left a thread running: kept-pool_")
    let_go.set()
    works.result()
    # The result is there a moment before the thread waits again.
    while left.unusable_reason():
        pass
    pool.shutdown()


def test_an_idle_pool_of_processes_does_not_count() -> None:
    left = ProcessLeaks()

    with left.watched():
        pool = ProcessPoolExecutor(1)
        pool.submit(int).result()

    while left.unusable_reason():
        pass
    pool.shutdown()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only /proc tells of children")
def test_a_program_that_still_runs_is_named() -> None:
    left = ProcessLeaks()

    with left.watched():
        program = subprocess.Popen(["sleep", "600"])

    # A process has its new name a moment after it has become another program.
    while Path(f"/proc/{program.pid}/comm").read_text().strip() != "sleep":
        pass
    try:
        assert left.unusable_reason() == "the task left a program running: sleep"
    finally:
        program.kill()
        program.wait()
    assert left.unusable_reason() == ""


def test_a_leak_that_cannot_be_undone_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    left = ProcessLeaks()

    with left.watched():
        gone.rmdir()

    assert left.unusable_reason().startswith("the task changed the current folder, and that cannot be undone")


def test_a_thread_of_a_class_that_cannot_be_asked_stops_nothing(let_go: threading.Event) -> None:
    class Odd(threading.Thread):
        odd = False

        def is_alive(self) -> bool:
            if self.odd:
                raise RuntimeError("not telling")
            return super().is_alive()

    left = ProcessLeaks()
    with left.watched():
        thread = Odd(target=let_go.wait)
        thread.start()
    thread.odd = True
    try:
        assert "left running: RuntimeError: not telling" in left.unusable_reason()
    finally:
        thread.odd = False


@pytest.mark.slow
def test_an_executor_leaves_although_a_thread_runs_on() -> None:
    code = (
        "import threading\n"
        "from perago.runtime.worker.executor import _end_process\n"
        "from perago.runtime.process.process_leaks import busy_threads\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "_end_process(0, immediately=bool(busy_threads(threading.enumerate())))\n"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
