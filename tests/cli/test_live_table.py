"""The table of a run on a terminal, while other threads print."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console, ConsoleOptions
from rich.text import Text

from perago.cli.terminal import LiveTable


class SlowLine:
    """A line that is being worked out until the test lets it end."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        self.begun.set()
        self.go_on.wait(10)
        yield Text("a line")


def test_a_table_waits_until_a_line_in_progress_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, line = StringIO(), SlowLine()
    monkeypatch.setattr(sys, "stderr", written)
    table = LiveTable(force_terminal=True, width=40)
    table.start()
    try:
        saying = threading.Thread(target=table.console.print, args=(line,))
        saying.start()
        assert line.begun.wait(10)
        drawing = threading.Thread(target=table.update, args=(Text("a row"),))
        drawing.start()
        # It waits for its turn; without that it would be on the terminal by now.
        drawing.join(0.3)
        line.go_on.set()
        for thread in (saying, drawing):
            thread.join(10)
            assert not thread.is_alive()
    finally:
        table.stop()

    assert "a row" not in written.getvalue().partition("a line")[0]


def test_threads_that_draw_and_print_at_once_never_wait_for_each_other_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    table = LiveTable(force_terminal=True, width=40)
    table.start()
    table.update(Text("row"))

    def draw() -> None:
        for number in range(200):
            table.update(Text(f"row {number}"))

    def write() -> None:
        for number in range(200):
            sys.stderr.write(f"line {number}\n")

    threads = [threading.Thread(target=work, daemon=True) for work in (draw, write, draw, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    table.stop()

    assert written.getvalue().count("line 199") == 2
    assert re.findall(r"(?<!\x1b\[2K)line \d+", written.getvalue()) == []
