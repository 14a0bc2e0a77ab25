"""An author sees their own frames of what their code raised, with the last of them in the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pydantic import BaseModel, field_validator

from perago.declare.checks import PathCheck, run_checks
from perago.declare.file_tree import FolderTree
from perago.declare.payload import parse_params
from perago.declare.user_code import (
    LINE_CHARS,
    MOST_LINES,
    describe_with_place,
    user_code,
    user_code_place,
    user_traceback,
)
from perago.errors import PeragoError, PostGuardrailViolation, TaskFailed
from tests.support.docs.sources import OUR_FILES


def caught(code: Callable[[], object]) -> Exception:
    """Return the exception that user code raises, as Perago catches it."""
    with pytest.raises(Exception) as raised, user_code("the task"):  # noqa: PT011 - any
        code()
    # pytest's own frames are not those of a worker, where ours come first.
    error = raised.value
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name == "caught":
        trace = trace.tb_next
    return error.with_traceback(trace)


def bad_row() -> None:
    raise ValueError("bad row\nin the second line")


def chained() -> None:
    try:
        bad_row()
    except ValueError as error:
        error.add_note("row 7 of a.csv")
        raise RuntimeError("cannot clean") from error


def grouped() -> None:
    raise ExceptionGroup("two went wrong", [caught(bad_row), KeyError("b")])


def endless() -> None:
    endless()


def left() -> None:
    raise SystemExit(3)


class Odd(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def known(cls, n: int) -> int:
        return {1: 1}[n]


class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


def silent() -> None:
    raise Silent


HERE = Path(__file__).name


@pytest.mark.parametrize(
    ("code", "reason", "shown"),
    [
        (bad_row, "ValueError: bad row\nin the second line (HERE in bad_row)", ["in the second line"]),
        (chained, "RuntimeError: cannot clean (HERE in chained)", ["row 7 of a.csv", "direct cause", "in bad_row"]),
        (grouped, "ExceptionGroup: two went wrong (2 sub-exceptions) (HERE in grouped)", ["KeyError: 'b'", "in bad_row"]),
        (lambda: json.loads("{"), "(HERE in <lambda>)", ["JSONDecodeError", "json/decoder.py"]),
        (left, "the task called sys.exit(3) (HERE in left)", ["in left", "SystemExit: 3"]),
        (partial(parse_params, Odd, '{"n": 2}', strict=True), "KeyError: 2 (HERE in known)", ["in known"]),
        (silent, "Silent (its text cannot be shown) (HERE in silent)", ["raise Silent"]),
        (endless, "(HERE in endless)", ["Previous line repeated"]),
    ],
)  # fmt: skip
def test_the_reason_names_the_authors_last_line_and_the_lines_show_the_rest(
    code: Callable[[], object], reason: str, shown: list[str]
) -> None:
    error = caught(code)

    said, lines = describe_with_place(error), user_traceback(error)
    text = "\n".join(lines)

    before, _, after = reason.partition("HERE")
    assert before in said
    assert said.endswith(after)
    assert HERE + ":" in said
    assert all(part in text for part in shown)
    assert OUR_FILES not in text
    assert "pydantic/" not in text


def test_a_check_that_raises_is_named_with_its_line_and_shows_its_own_traceback(tmp_path: object) -> None:
    def sorted_rows(_workdir: object, _params: object) -> None:
        bad_row()

    error = caught(partial(run_checks, "post", [sorted_rows], FolderTree(tmp_path)))  # type: ignore[arg-type]

    assert isinstance(error, PostGuardrailViolation)
    assert f"({HERE}:" in str(error)
    assert "in bad_row)" in str(error)
    assert user_traceback(error)[-2:] == ["ValueError: bad row", "in the second line"]
    assert user_traceback(error)[0] == "Traceback (most recent call last):"


def test_an_error_not_raised_by_user_code_has_no_traceback(tmp_path: object) -> None:
    check = PathCheck("require_file", "a")
    try:
        run_checks("pre", [check], FolderTree(tmp_path))  # type: ignore[arg-type]
    except PeragoError as error:
        ours = error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
        assert user_traceback(ours) == []
        assert user_code_place(ours) == ""
    else:
        pytest.fail("the check holds")


def test_an_intended_error_shows_the_authors_text() -> None:
    def give_up() -> None:
        raise TaskFailed("the supplier has sent nothing")

    error = caught(give_up)

    assert describe_with_place(error) == "the supplier has sent nothing"
    assert "in give_up" in "\n".join(user_traceback(error))


def test_a_traceback_is_cut_in_the_middle() -> None:
    def long() -> None:
        raise ValueError("\n".join(map(str, range(10 * MOST_LINES))))

    lines = user_traceback(caught(long))

    assert len(lines) == MOST_LINES + 1
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == str(10 * MOST_LINES - 1)
    assert any("lines are left out" in line for line in lines)


class Leaves(Exception):
    def __getattribute__(self, name: str) -> object:
        if name == "__notes__":
            raise SystemExit(3)
        return super().__getattribute__(name)


def test_an_error_whose_attributes_leave_the_process_still_ends_the_attempt_as_itself() -> None:
    def leave() -> None:
        raise Leaves("as asked")

    error = caught(leave)

    assert user_traceback(error) == []
    assert describe_with_place(error).startswith("Leaves: as asked")


def test_a_secret_that_stands_where_a_line_is_cut_is_masked_first() -> None:
    def give_away() -> None:
        raise ValueError("x" * (LINE_CHARS - len("ValueError: ") - 3) + "hush-hush")

    lines = user_traceback(caught(give_away), lambda text: text.replace("hush-hush", "***"))

    assert lines[-1].endswith("x***")
    assert not [line for line in lines if "hus" in line]


def test_a_text_of_millions_of_lines_is_cut_before_its_lines_are_processed() -> None:
    def long() -> None:
        raise ValueError("first\n" + "x\n" * 1_000_000 + "last")

    lines = user_traceback(caught(long))

    assert "ValueError: first" in lines
    assert lines[-1] == "last"
    assert len(lines) == MOST_LINES + 1
    (said,) = [line for line in lines if "lines are left out" in line]
    assert int(said.split()[1]) < 1_000_000
