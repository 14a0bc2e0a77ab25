"""Output of bodies: cut into lines, assigned to the right execution, bounded, masked."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.runtime.worker.output_capture import Bounds, LineSplitter, OutputReader
from tests.support.worlds.inboxes import Lines

BEGIN = b"\n\x00perago begin e1\x00\n"
END = b"\n\x00perago end e1\x00\n"
STREAM = (
    b"imported\n" + BEGIN + b"one\n\ntwo " + "é".encode() + b"\nno end" + END + b"idle\n"
    b"\n\x00perago begin e2\x00\n" + b"three\r\n" + b"\n\x00perago end e2\x00\n"
)
EXPECTED = [
    ("", "imported"),
    ("e1", "one"),
    ("e1", ""),
    ("e1", "two é"),
    ("e1", "no end"),
    ("", "idle"),
    ("e2", "three"),
]


def split(
    *chunks: bytes, bounds: Bounds | None = None, secrets: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    lines = Lines(secrets)
    splitter = LineSplitter(lines, bounds)
    for chunk in chunks:
        splitter.feed(chunk)
    splitter.finish()
    return lines.found


def test_every_line_goes_to_the_execution_that_printed_it() -> None:
    assert split(STREAM) == EXPECTED


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=20))
def test_lines_are_the_same_wherever_the_reads_cut_the_stream(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:stop] for start, stop in itertools.pairwise(places)]

    assert split(*chunks) == EXPECTED


def test_lines_are_the_same_one_byte_at_a_time() -> None:
    assert split(*(bytes([byte]) for byte in STREAM)) == EXPECTED


def test_lines_over_the_bound_are_counted_and_said_at_the_end() -> None:
    found = split(BEGIN, b"a\nb\nc\nd\n", END, bounds=Bounds(lines=2))

    assert found == [("e1", "a"), ("e1", "b"), ("e1", "… 2 more lines were not kept")]


def test_characters_over_the_bound_are_dropped_by_whole_lines() -> None:
    found = split(BEGIN, b"aaaa\nbbbb\nc\n", END, bounds=Bounds(chars=6))

    assert found == [("e1", "aaaa"), ("e1", "c"), ("e1", "… 1 more lines were not kept")]


def test_each_execution_has_its_own_bound() -> None:
    begin_again = BEGIN.replace(b"e1", b"e2")

    found = split(BEGIN, b"a\nb\n", END, begin_again, b"c\n", bounds=Bounds(lines=1))

    assert found == [("e1", "a"), ("e1", "… 1 more lines were not kept"), ("e2", "c")]


def test_a_line_that_never_ends_is_cut_and_not_kept_in_memory() -> None:
    found = split(BEGIN, *[b"x" * 1000] * 100, END, bounds=Bounds(line_chars=10))

    assert found[0] == ("e1", "x" * 10 + " …")
    assert all(len(line) <= 12 for _, line in found)


def test_secrets_are_masked_in_what_bodies_print() -> None:
    assert split(BEGIN, b"key=hush-hush\n", END, secrets=("hush-hush",)) == [("e1", "key=***")]


@pytest.mark.parametrize("before", range(30, 80))
def test_no_half_of_a_secret_is_left_where_a_line_without_an_end_is_cut(before: int) -> None:
    bounds = Bounds(line_chars=10)
    line = b"x" * (4 * bounds.line_chars + 200 - before) + b"hush-hush-hush-hush" + b"y" * before
    found = split(
        BEGIN, *(bytes([byte]) for byte in line), END, bounds=bounds, secrets=("hush-hush-hush-hush",)
    )

    assert "hush" not in "".join(text for _, text in found)


def test_output_of_an_executor_killed_in_mid_line_is_kept() -> None:
    assert split(BEGIN, b"so far\nhalf a li") == [("e1", "so far"), ("e1", "half a li")]


BODY = """
import os, subprocess, sys
from perago.runtime.worker.output_capture import Printer
printer = Printer(int(sys.argv[1]))
printer.begin("e1")
print("from print")
print("from stderr", file=sys.stderr)
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
os.write(1, b"x" * 200_000 + bytes([10]))
printer.end("e1")
print("a line for the log", file=printer.log)
"""


@pytest.mark.slow
def test_an_executors_output_is_read_by_its_supervisor_and_its_log_stays_apart() -> None:
    lines = Lines()
    reader = OutputReader(lines)

    child = subprocess.Popen(
        [sys.executable, "-c", BODY, str(reader.write_fd)],
        pass_fds=[reader.write_fd],
        stderr=subprocess.PIPE,
        text=True,
    )
    reader.close_write_end()
    _, logged = child.communicate()
    reader.join()

    assert child.returncode == 0, logged
    assert logged == "a line for the log\n"
    assert sorted(lines.found[:2]) == [("e1", "from print"), ("e1", "from stderr")]
    assert lines.found[2] == ("e1", "from a child")
    assert {execution for execution, _ in lines.found} == {"e1"}


def test_a_pipe_that_no_executor_ever_used_ends_too() -> None:
    lines = Lines()
    reader = OutputReader(lines)

    reader.join()

    assert not lines.found


def test_redirecting_into_a_pipe_that_is_not_there_is_an_error() -> None:
    code = "from perago.runtime.worker.output_capture import Printer; Printer(999)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "Bad file descriptor" in done.stderr
    with pytest.raises(subprocess.CalledProcessError):
        done.check_returncode()
