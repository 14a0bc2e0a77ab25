"""How each error ends an attempt; the docs show the same table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perago.errors import (
    LakeError,
    OrchestratorError,
    PostGuardrailViolation,
    PreGuardrailViolation,
    PublishFenceError,
    PublishUnknownError,
    StaleAttemptError,
    TaskFailed,
    TaskInputError,
    TaskTerminalError,
)
from perago.protocol.outcome import LostToTwin, Outcome, classify, completed, describe, shorten

DOCS = Path(__file__).parents[2] / "docs" / "publication.md"
TABLE = {
    TaskInputError: ("FAILED", True),
    LakeError: ("FAILED", True),
    OrchestratorError: ("FAILED", True),
    PreGuardrailViolation: ("FAILED_WITH_TERMINAL_ERROR", True),
    TaskTerminalError: ("FAILED_WITH_TERMINAL_ERROR", True),
    TaskFailed: ("FAILED", True),
    PostGuardrailViolation: ("FAILED", True),
    PublishFenceError: ("FAILED", True),
    PublishUnknownError: ("FAILED", True),
    StaleAttemptError: ("FAILED", False),
    LostToTwin: ("LOST_TO_TWIN", False),
    Exception: ("FAILED", True),
}


@pytest.mark.parametrize("error", TABLE, ids=lambda error: error.__name__)
def test_every_error_has_its_ending(error: type[Exception]) -> None:
    outcome = classify(error("why"))
    assert (outcome.status, outcome.send) == TABLE[error]
    assert "why" in (outcome.reason or "")


def test_the_docs_show_this_very_table() -> None:
    rows = re.findall(r"^\| .*?`(\w+)` \| `(\w+)` \| (yes|no) \|$", DOCS.read_text(), re.MULTILINE)
    assert {name: (status, sent == "yes") for name, status, sent in rows} == {
        error.__name__: row for error, row in TABLE.items()
    }


def test_a_settled_attempt_completes_with_its_output() -> None:
    assert completed({"result": {}}) == Outcome("COMPLETED", output={"result": {}})


def test_a_reason_is_led_by_the_type_of_a_foreign_error() -> None:
    assert describe(TaskFailed("no luck")) == "no luck"
    assert describe(ValueError("no luck")) == "ValueError: no luck"
    assert describe(KeyError()) == "KeyError"
    assert describe(LakeError("")) == "LakeError"


def test_an_error_whose_text_cannot_be_read_is_told_by_its_type() -> None:
    class Silent(TaskFailed):
        def __str__(self) -> str:
            raise SystemExit(1)

    assert classify(Silent("x")) == Outcome("FAILED", reason="Silent (its text cannot be shown)")


def test_a_long_reason_is_cut_at_a_whole_line() -> None:
    assert shorten("short", 40) == "short"
    assert shorten("first line\nsecond line that is long", 20) == "first line …"
    cut = shorten("x" * 100, 20)
    assert cut == "x" * 18 + " …"
