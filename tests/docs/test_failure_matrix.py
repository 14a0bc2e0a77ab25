"""docs/failure-matrix.md says what the code does: every ending is there, with its status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import perago.errors
from perago.protocol.outcome import (
    LostToTwin,
    Outcome,
    classify,
    dispatch_failed,
    executor_died,
    executors_died,
    result_refused,
    worker_died,
)
from perago.protocol.policies import POLICIES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "failure-matrix.md").read_text()
PUBLICATION = (DOCS / "publication.md").read_text()
ROWS = dict(re.findall(r"^\| [^|]*: `(\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
TOLD_BY_THE_WORKER = {
    "executor_died": executor_died("SIGKILL", "body"),
    "worker_died": worker_died("host:1"),
    "executors_died": executors_died(3),
    "dispatch_failed": dispatch_failed(OSError("x")),
    "result_refused": result_refused(OSError("x")),
}
STATUSES = r"`(COMPLETED|FAILED_WITH_TERMINAL_ERROR|FAILED|TIMED_OUT|CANCELED|IN_PROGRESS|SCHEDULED)`"


def outcome_of(name: str) -> Outcome:
    if name in TOLD_BY_THE_WORKER:
        return TOLD_BY_THE_WORKER[name]
    ours = {"LostToTwin": LostToTwin, "Exception": Exception}
    return classify((ours.get(name) or getattr(perago.errors, name))("why"))


def test_every_ending_of_the_protocols_table_has_its_row() -> None:
    protocol = re.findall(r"^\| .*?`(\w+)` \| `\w+` \| (?:yes|no) \|$", PUBLICATION, re.MULTILINE)

    assert len(protocol) == 19
    assert sorted(ROWS) == sorted(protocol)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_shows_the_status_that_the_code_sends(name: str) -> None:
    outcome, cell = outcome_of(name), ROWS[name]

    if outcome.send:
        assert cell.startswith(f"`{outcome.status}`")
        assert ("retries" in cell) == (outcome.status == "FAILED")
    else:
        assert cell.startswith("nothing from this execution")


def test_no_other_status_is_named_than_conductor_has() -> None:
    cells = re.findall(r"^\| [^|]* \| ([^|]*) \|", PAGE, re.MULTILINE)
    shouted = {word for cell in cells for word in re.findall(r"`([A-Z_]{6,})`", cell)}

    assert shouted == {word for cell in cells for word in re.findall(STATUSES, cell)}
    assert len(shouted) >= 6


def test_every_policy_has_its_row() -> None:
    title, *rows = re.findall(
        r"^\| `(\w+)`(?: \(default\)| with `(?:\w+=\"\w+\")`)? \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE
    )

    assert title == "on_abandoned"
    assert rows == [policy.on_abandoned for policy in POLICIES.values()]


def test_every_ending_that_conductor_retries_names_the_command_that_continues_the_workflow() -> None:
    remedies = dict(re.findall(r"^\| [^|]*: `(\w+)` \| [^|]* \| [^|]* \| ([^|]*) \|$", PAGE, re.MULTILINE))
    assert remedies.keys() == ROWS.keys()
    by_itself = {"LostToTwin", "StaleAttemptError", "PublishUnknownError"}
    of_the_worker = {"dispatch_failed", "executors_died", "result_refused"}

    for name in remedies.keys() - by_itself - of_the_worker:
        assert "`perago retry" in remedies[name] or "`perago submit`" in remedies[name], name
