"""Templates in paths: their names, the escaping of values, and the values that cannot fill a path."""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest

from perago.protocol.partitions import (
    CannotFill,
    conservative,
    escaped,
    fill,
    filling,
    nearest_filling,
    template_names,
    template_pattern,
    textual,
    unescaped,
    without_templates,
)


class Region(Enum):
    EU = "eu"
    BAD = ""


class Size(IntEnum):
    SMALL = 1


class Kind(StrEnum):
    RAW = "raw/x"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("plays", ()),
        ("raw/day={day}", ("day",)),
        ("{day}", ("day",)),
        ("a{day}b{region}c", ("day", "region")),
        ("{region}/{day}/{region}", ("region", "day")),
        ("{größe}/{_x1}", ("größe", "_x1")),
        ("{}", ()),
        ("{1}", ()),
        ("{a b}", ()),
        ("{a,b}", ()),
        ("{a", ()),
        ("{{a}}", ("a",)),
    ],
)
def test_names_are_identifiers_in_braces(path: str, names: tuple[str, ...]) -> None:
    assert template_names([path, path]) == names


def test_what_is_left_of_a_path_shows_braces_that_are_no_template() -> None:
    assert without_templates("raw/day={day}/{x}") == "raw/day=x/x"
    assert without_templates("{{day}}/{a,b}") == "{x}/{a,b}"


def test_names_without_a_text_stay() -> None:
    assert fill("{a}/{b}-{a}/{c,d}", {"a": "1"}) == "1/{b}-1/{c,d}"


ESCAPED = "\"#%'*/:=?\\\x7f{[]^"


def test_exactly_the_characters_that_spark_escapes_are_escaped() -> None:
    every = [chr(number) for number in range(1, 0x250)]
    changed = [one for one in every if escaped(one) != one]

    assert changed == sorted([*map(chr, range(1, 32)), *ESCAPED])
    assert all(escaped(one) == f"%{ord(one):02X}" for one in changed)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("eu", "eu"),
        ("so what", "so what"),
        (" a ", " a "),
        ("a/b", "a%2Fb"),
        ("/x", "%2Fx"),
        ("50%", "50%25"),
        ("%2F", "%252F"),
        ("a=b:c", "a%3Db%3Ac"),
        ("a*?[b]{c^'\"#\\", "a%2A%3F%5Bb%5D%7Bc%5E%27%22%23%5C"),
        ("ü😀", "ü😀"),
        ("~+&;,!()@$|<>`", "~+&;,!()@$|<>`"),
        ("-x", "-x"),
        ("a.", "a."),
        ("x" * 200, "x" * 200),
        ("ü" * 100, "ü" * 100),
        ("/" * 66, "%2F" * 66),
        (0, "0"),
        (-7, "-7"),
        (10**199, "1" + "0" * 199),
        (date(2026, 1, 2), "2026-01-02"),
        (date(1, 1, 2), "0001-01-02"),
        (Region.EU, "eu"),
        (Size.SMALL, "1"),
        (Kind.RAW, "raw%2Fx"),
    ],
)
def test_a_value_is_filled_as_spark_names_partitions(value: Any, text: str) -> None:
    assert filling(value) == text


EMPTY, UNICODE, PRINT = "be empty", "be valid Unicode", "cannot be printed"
HIDDEN, BRACE, LONG, KIND = (
    "begin with '.' or '_'",
    "hold '}'",
    "longer than 200 bytes",
    "must be text, a whole",
)
HOSTILE: list[tuple[Any, str]] = [
    ("", EMPTY),
    (Region.BAD, EMPTY),
    (".", HIDDEN),
    ("..", HIDDEN),
    ("../other", HIDDEN),
    ("...", HIDDEN),
    (".hidden", HIDDEN),
    (".perago-attempt.json", HIDDEN),
    ("_", HIDDEN),
    ("_SUCCESS", HIDDEN),
    ("_temporary", HIDDEN),
    ("_delta_log", HIDDEN),
    ("_lakefs_actions", HIDDEN),
    ("_lakefs_actions/x", HIDDEN),
    ("__HIVE_DEFAULT_PARTITION__", HIDDEN),
    ("a}", BRACE),
    ("{day}", BRACE),
    ("{a,b}", BRACE),
    ("\0", PRINT),
    ("a\0b", PRINT),
    ("a\nb", PRINT),
    ("a\r", PRINT),
    ("\t", PRINT),
    ("\x1b[31m", PRINT),
    ("\x7f", PRINT),
    ("\x85", PRINT),
    ("a\u00a0b", PRINT),
    ("\u200b", PRINT),
    ("\u202edcba", PRINT),
    ("\u2028", PRINT),
    ("\ufeff", PRINT),
    ("\ue000", PRINT),
    ("\ud800", UNICODE),
    ("a\udcff", UNICODE),
    ("x" * 201, LONG),
    ("ü" * 101, LONG),
    ("/" * 67, LONG),
    (10**200, LONG),
    (10**5000, LONG),
    (True, KIND),
    (1.5, KIND),
    (None, KIND),
    (b"x", KIND),
    (datetime(2026, 1, 1), KIND),
    (["a"], KIND),
]


@pytest.mark.parametrize(("value", "says"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_value_that_cannot_name_a_partition_is_refused_and_never_shown(value: Any, says: str) -> None:
    with pytest.raises(CannotFill) as refused:
        filling(value)

    assert says in str(refused.value)
    assert str(refused.value).isprintable()


def test_text_of_a_subclass_is_its_characters() -> None:
    class Odd(str):
        def __str__(self) -> str:
            return "../other"

    assert filling(Odd("eu")) == "eu"


def test_before_it_is_filled_a_path_is_the_folders_above_its_first_name() -> None:
    paths = ("plays", "raw/day={day}/x", "{day}", "a/b{day}")
    assert conservative(paths) == ("plays", "raw", "", "a")
    assert conservative(None) is None


@pytest.mark.parametrize(
    ("template", "path", "nearest"),
    [
        ("clean/day={day}", "clean/day={day}", "clean/day=<day>"),
        ("clean/day={day}", "clean/day={day}/*.csv", "clean/day=<day>"),
        ("clean/day={day}", "clean/day={region}", "clean/day=<day>"),
        ("clean/day={day}", "clean/day=2026", "clean/day=2026"),
        ("clean/day={day}/x", "clean/day=2026", "clean/day=2026/x"),
        ("clean/day={day}", "clean/hour=7", "clean/day=<day>"),
        ("clean/day={day}", "clean/day=", "clean/day=<day>"),
        ("clean/day={day}", "clean", "clean/day=<day>"),
        ("clean/{day}-{region}", "clean/1-eu", "clean/1-eu"),
        ("clean/{day}-{region}", "clean/1eu", "clean/<day>-<region>"),
        ("clean/day={day}", "clean/day=*", "clean"),
        ("clean/day={day}", "clean/day={day}*", "clean"),
        ("clean/day={day}", "**/x", "clean"),
        ("clean/day={day}", "clean/**", "clean"),
        ("{day}", "*", ""),
        ("plays", "**", "plays"),
        ("clean/day=2026", "clean/day={day}", "clean/day=<day>"),
        ("clean/hour=7", "clean/day={day}", "clean/hour=7"),
        ("clean/a.b={day}", "clean/aXb=1", "clean/a.b=<day>"),
    ],
)
def test_the_filling_that_comes_closest_to_a_check(template: str, path: str, nearest: str) -> None:
    shown = nearest_filling(template, path).replace("\ue000", "<").replace("\ue001", ">")
    assert shown == nearest


def test_templates_are_words_of_their_own() -> None:
    assert textual("a{day}") == "a\ue000day\ue001"


@pytest.mark.parametrize("text", ["a b", "x/y", "100%", "%2F", "ü", "a=b:c*?", "'\"#[]^{", "\\"])
def test_an_escaped_text_is_read_back(text: str) -> None:
    assert unescaped(escaped(text)) == text


@pytest.mark.parametrize(
    ("template", "path", "found"),
    [
        ("raw/day={day}", "raw/day=1", {"day": "1"}),
        ("raw/day={day}", "raw/day=1/x", None),
        ("raw/day={day}", "raw/day=", None),
        ("a.b/{day}", "axb/1", None),
        ("{day}/x-{day}", "1/x-1", {"day": "1"}),
        ("{day}/x-{day}", "1/x-2", None),
        ("{region}/{day}", "eu/1", {"region": "eu", "day": "1"}),
    ],
)
def test_the_values_in_a_filled_path_are_found(
    template: str, path: str, found: dict[str, str] | None
) -> None:
    match = template_pattern(template).fullmatch(path)
    assert (None if match is None else match.groupdict()) == found
