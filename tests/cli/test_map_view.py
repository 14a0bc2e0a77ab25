"""The progress of `perago map` without a terminal."""

from __future__ import annotations

import pytest

from perago.cli.map_view import LINE_SECONDS, MOST_FAILURES, MapView
from perago.runtime.maps.rows import RowOutcome
from tests.support.worlds.clock import Clock


def ended(number: int, reason: str = "") -> RowOutcome:
    return RowOutcome(number, "songs", "main", "FAILED" if reason else "COMPLETED", reason)


def test_rate_time_left_and_failures_are_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with MapView(400, quiet=False, clock=clock) as view:
        for number in range(1, 101):
            clock.sleep(LINE_SECONDS / 50)
            view.on_outcome(ended(number, "no such tune" if number == 3 else ""))

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "row 3 (songs@main): FAILED: no such tune",
        "50 of 400 rows, 1 failed, 5.0 a second, 1 min 10 s left",
        "100 of 400 rows, 1 failed, 5.0 a second, 1 min 0 s left",
    ]


def test_many_failures_are_not_all_told(capsys: pytest.CaptureFixture[str]) -> None:
    with MapView(100, quiet=False, clock=Clock()) as view:
        for number in range(1, 101):
            view.on_outcome(ended(number, "bad"))

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_FAILURES + 1
    assert lines[-1] == "more rows failed: the table of outcomes will have all of them"


def test_nothing_is_told_beside_json(capsys: pytest.CaptureFixture[str]) -> None:
    with MapView(1, quiet=True, clock=Clock()) as view:
        view.on_outcome(ended(1, "bad"))

    assert capsys.readouterr().err == ""
