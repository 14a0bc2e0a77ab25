"""The outcome of an attempt for each error; the docs show the same table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perago
from perago.errors import (
    LakeError,
    OrchestratorError,
    OutputRewritten,
    PostGuardrailViolation,
    PreGuardrailViolation,
    PublishFenceError,
    PublishUnknownError,
    StaleAttemptError,
    TaskFailed,
    TaskInputError,
    TaskResultError,
    TaskTerminalError,
)
from perago.protocol.outcome import (
    LostToTwin,
    Outcome,
    classify,
    completed,
    describe,
    dispatch_failed,
    executor_died,
    executors_died,
    prepare_for_sending,
    result_refused,
    shorten,
    worker_died,
)
from tests.support.docs.sources import parsed

SRC = Path(perago.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "publication.md"
TABLE = {
    TaskInputError: ("FAILED", True),
    TaskResultError: ("FAILED", True),
    LakeError: ("FAILED", True),
    OrchestratorError: ("FAILED", True),
    PreGuardrailViolation: ("FAILED_WITH_TERMINAL_ERROR", True),
    TaskTerminalError: ("FAILED_WITH_TERMINAL_ERROR", True),
    TaskFailed: ("FAILED", True),
    PostGuardrailViolation: ("FAILED", True),
    OutputRewritten: ("FAILED", True),
    PublishFenceError: ("FAILED", True),
    PublishUnknownError: ("FAILED", True),
    StaleAttemptError: ("FAILED", False),
    LostToTwin: ("LOST_TO_TWIN", False),
    Exception: ("FAILED", True),
}
TOLD_BY_THE_WORKER = {
    "executor_died": (
        executor_died("signal SIGKILL", "body"),
        "the executor died with signal SIGKILL at step 'body'",
    ),
    "worker_died": (
        worker_died("host:7"),
        "the worker host:7 died while it ran this attempt; reported by the next worker on its root",
    ),
    "executors_died": (
        executors_died(3),
        "its executor died 3 times in a row while it ran; its log may say why",
    ),
    "dispatch_failed": (
        dispatch_failed(OSError("broken pipe")),
        "the attempt cannot be handed to an executor: OSError: broken pipe",
    ),
    "result_refused": (
        result_refused(OrchestratorError("too large")),
        "the result was refused: too large",
    ),
}


@pytest.mark.parametrize("error", TABLE, ids=lambda error: error.__name__)
def test_every_error_has_its_ending(error: type[Exception]) -> None:
    outcome = classify(error("why"))
    assert (outcome.status, outcome.send) == TABLE[error]
    assert "why" in (outcome.reason or "")


@pytest.mark.parametrize("error", TABLE, ids=lambda error: error.__name__)
def test_only_a_wrong_input_ends_otherwise_where_it_is_to_be_terminal(error: type[Exception]) -> None:
    outcome = classify(error("why"), "terminal")
    if error is TaskInputError:
        assert outcome == Outcome("FAILED_WITH_TERMINAL_ERROR", reason="why")
    else:
        assert outcome == classify(error("why"))


def test_a_refusal_that_no_retry_can_change_stays_failed_and_says_that_it_is_final() -> None:
    assert classify(PublishFenceError("moved", final=True)) == Outcome("FAILED", reason="moved", final=True)
    assert not classify(PublishFenceError("moved")).final
    assert classify(OutputRewritten("edited")).final


def test_the_docs_show_the_row_of_the_setting() -> None:
    [(status, sent)] = re.findall(
        r"^\| the same, with `PERAGO_WRONG_INPUT=terminal` \| `(\w+)` \| (yes|no) \|$",
        DOCS.read_text(),
        re.MULTILINE,
    )
    outcome = classify(TaskInputError("why"), "terminal")
    assert (status, sent == "yes") == (outcome.status, outcome.send)


def test_the_docs_show_this_very_table() -> None:
    rows = re.findall(r"^\| .*?`(\w+)` \| `(\w+)` \| (yes|no) \|$", DOCS.read_text(), re.MULTILINE)
    assert {name: (status, sent == "yes") for name, status, sent in rows} == {
        **{error.__name__: row for error, row in TABLE.items()},
        **{name: (outcome.status, outcome.send) for name, (outcome, _reason) in TOLD_BY_THE_WORKER.items()},
    }


@pytest.mark.parametrize(("outcome", "reason"), TOLD_BY_THE_WORKER.values(), ids=TOLD_BY_THE_WORKER)
def test_a_workers_report_about_an_attempt_is_a_failure_with_its_reason(
    outcome: Outcome, reason: str
) -> None:
    assert outcome == Outcome("FAILED", reason=reason)


def test_no_other_module_makes_up_an_ending() -> None:
    made = [
        path.relative_to(SRC).as_posix()
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Outcome"
    ]

    # The outbox reads back an ending that was written there.
    assert set(made) == {"protocol/outcome.py", "runtime/worker/outbox.py"}


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


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_a_long_reason_keeps_its_beginning_and_its_end() -> None:
    way_on = "start a new workflow from the current head"
    reason = f"branch 'main' has moved from {'a' * 64} to {'b' * 64}, {'and so on, ' * 60}{way_on}"
    cut = shorten(reason, 200)
    assert len(cut) <= 200
    assert cut.startswith("branch 'main' has moved from aaaa")
    assert cut.endswith(way_on)
    assert cut.count(" … ") == 1


def test_a_long_reason_is_cut_between_words_or_lines() -> None:
    assert shorten("short", 40) == "short"
    assert shorten("one two three four five six seven", 23) == "one two … six seven"
    assert shorten("first line\nof many\nmore\nmore\nlast line", 26) == "first line … last line"
    assert shorten("x" * 100, 21) == "x" * 9 + " … " + "x" * 9


def test_a_reason_is_as_long_as_conductor_counts_it() -> None:
    assert shorten("🎧" * 20, 40) == "🎧" * 20
    assert utf16(shorten("🎧" * 21, 40)) <= 40


@pytest.mark.parametrize("letter", ["e\u0301", "👩\u200d👧", "👍🏽", "k\u0323\u0302"])
@pytest.mark.parametrize("limit", range(10, 24))
def test_a_letter_of_several_characters_stays_whole(letter: str, limit: int) -> None:
    begin, _, end = shorten(letter * 50, limit).partition(" … ")
    assert begin == letter * (len(begin) // len(letter))
    assert end == letter * (len(end) // len(letter))


def test_more_marks_than_any_letter_has_do_not_eat_the_reason() -> None:
    assert shorten("e" + "\u0301" * 99, 43) == "e" + "\u0301" * 19 + " … " + "\u0301" * 20


@given(st.text(alphabet="ab \n\u0301\u200dé🎧", max_size=120), st.integers(3, 60))
def test_a_cut_reason_always_fits(reason: str, limit: int) -> None:
    cut = shorten(reason, limit)
    assert utf16(cut) <= limit
    assert cut == reason or utf16(reason) > limit


def test_texts_that_leave_the_worker_are_masked_before_they_are_cut() -> None:
    reason = "begin " + "x" * 40 + "hush-hush" + "x" * 40 + " end"

    def hide(text: str) -> str:
        return text.replace("hush-hush", "***")

    for limit in range(40, 100):
        said = prepare_for_sending(Outcome("FAILED", reason=reason), hide, limit).reason
        assert said is not None
        assert "h" not in said
        assert len(said) <= limit


def test_a_reason_that_is_no_unicode_is_made_sound() -> None:
    said = prepare_for_sending(Outcome("FAILED", reason="cannot read 'a\udcff'"), str, 100).reason
    assert said == "cannot read 'a\\udcff'"


def test_a_nul_in_a_reason_is_written_out_and_masked_texts_are_found_all_the_same() -> None:
    said = prepare_for_sending(
        Outcome("FAILED", reason="a\0b"), lambda text: text.replace("b", "***"), 100
    ).reason
    assert said == r"a\x00***"


def test_an_output_is_data_and_stays_as_it_is() -> None:
    outcome = completed({"result": {"said": "hush-hush"}})
    assert prepare_for_sending(outcome, lambda text: text.replace("hush", "***"), 40) is outcome
