"""Suggestions for an unknown name."""

from __future__ import annotations

import pytest

from perago.protocol.suggestions import did_you_mean, listed, nearest


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("claen", ["load", "clean"], "clean"),
        ("row", ["rows", "right"], "rows"),
        # The most alike comes before one that merely begins so.
        ("data", ["data_of_yesterday", "date"], "date"),
        ("wor", ["workspace", "params"], "workspace"),
        # Two names with this beginning: the choice is ambiguous.
        ("2026", ["20261116-143412-load-0c51", "20261117-143412-load-0c52"], None),
        ("wo", ["workspace"], None),
        ("x", ["clean"], None),
        ("clean", [], None),
    ],
)
def test_the_name_that_was_probably_meant(name: str, known: list[str], meant: str | None) -> None:
    assert nearest(name, known) == meant


def test_a_name_that_comes_twice_is_still_one() -> None:
    assert nearest("wor", iter(["workspace", "workspace"])) == "workspace"


def test_a_question_ends_the_sentence() -> None:
    assert did_you_mean("claen", ["clean"]) == "; did you mean 'clean'?"


def test_without_a_near_name_the_sentence_ends_as_its_author_says() -> None:
    assert did_you_mean("x", ["clean"]) == ""
    assert did_you_mean("x", ["clean"], otherwise="; there are: clean") == "; there are: clean"


@pytest.mark.parametrize(
    ("count", "ends"), [(0, "nothing"), (1, "n0"), (12, "n10, n11"), (13, "n11 and 1 more")]
)
def test_a_list_ends_where_it_would_be_too_long_to_read(count: int, ends: str) -> None:
    text = listed((f"n{number}" for number in range(count)), none="nothing")

    assert text.endswith(ends)
    assert text.count(",") == max(0, min(count, 12) - 1)
