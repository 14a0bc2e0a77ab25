"""Whatever a body does to stdout and stderr: what it printed is read, its end is seen, the next one can print."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perago.runtime.worker.output_capture import OutputReader
from tests.support.worlds.inboxes import Lines

EXECUTOR = """
import io, os, sys, threading
from perago.runtime.process import stdio_state
from perago.runtime.worker.output_capture import Printer
from perago.runtime.process.process_state import preserving_process_state

stdio_state.FLUSH_SECONDS = 0.05
printer = Printer(int(sys.argv[1]))
printer.begin("e1")
with preserving_process_state():
    print("printed first")
    {spoil}
printer.end("e1")
printer.begin("e2")
print("printed next")
print("as an error", file=sys.stderr)
os.write(1, b"past Python\\n")
os.write(2, b"past Python too\\n")
printer.end("e2")
"""
NEXT = {"printed next", "as an error", "past Python", "past Python too"}


def printed(spoil: str) -> tuple[list[str], list[str], list[str]]:
    """Return what was read from the two executions, and which ends were seen."""
    lines = Lines()
    reader = OutputReader(lines)
    code = EXECUTOR.replace("{spoil}", spoil.replace("\n", "\n    "))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(reader.write_fd)], pass_fds=[reader.write_fd], stderr=subprocess.PIPE
    ) as child:
        reader.close_write_end()
        _, wrong = child.communicate(timeout=60)
    reader.join()
    assert child.returncode == 0, (wrong.decode(), lines.found)
    first, second = ([line for execution, line in lines.found if execution == one] for one in ("e1", "e2"))
    return first, second, lines.ended


@pytest.mark.parametrize(
    "spoil",
    [
        "sys.stdout = None",
        "del sys.stdout, sys.stderr",
        "sys.stdout = sys.stderr = object()",
        "sys.stdout = type('Tee', (), {'flush': lambda self: 1 / 0})()",
        "sys.stdout = type('Tee', (), {'flush': lambda self: sys.exit(3)})()",
        "sys.stdout = type('Tee', (), {'flush': lambda self: threading.Event().wait()})()",
        "sys.stdout = type('Tee', (), {'__eq__': lambda self, other: 1 / 0})()",
        "os.close(1)",
        "os.close(1); os.close(2)",
        "os.close(0); os.close(1); os.close(2)",
        "sys.stdout.close()",
        "sys.stderr.close(); sys.stdout.close()",
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer)",
        "sys.stdout = io.TextIOWrapper(sys.stdout.detach())",
        "os.set_blocking(1, False)",
        "os.dup2(os.pipe()[1], 2)",
    ],
)
@pytest.mark.slow
def test_the_body_is_seen_to_the_end_and_the_next_one_can_print(spoil: str) -> None:
    first, second, ended = printed(spoil)

    assert first == ["printed first"]
    assert set(second) == NEXT
    assert ended == ["e1", "e2"]


@pytest.mark.slow
def test_output_that_a_tee_held_back_is_sent_on() -> None:
    first, second, _ = printed(
        "sys.stdout = io.TextIOWrapper(open(os.dup(1), 'wb'))\nprint('through the tee')"
    )

    assert sorted(first) == ["printed first", "through the tee"]
    assert set(second) == NEXT


@pytest.mark.slow
def test_output_that_a_body_redirected_goes_there() -> None:
    first, second, ended = printed(
        "sys.stdout.flush(); os.dup2(os.open(os.devnull, os.O_WRONLY), 1); print('hush')"
    )

    assert first == ["printed first"]
    assert set(second) == NEXT
    assert ended == ["e1", "e2"]


@pytest.mark.slow
def test_a_thread_that_hangs_in_a_print_holds_nothing_up() -> None:
    first, second, ended = printed(
        "sys.stdout.flush(); r, w = os.pipe(); os.dup2(w, 1)\n"
        "t = threading.Thread(target=print, args=('x' * 1_000_000,), daemon=True); t.start(); t.join(0.2)"
    )

    assert first == ["printed first"]
    assert set(second) == NEXT
    assert ended == ["e1", "e2"]
