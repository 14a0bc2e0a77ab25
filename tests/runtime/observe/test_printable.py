"""Nothing that somebody else wrote controls the reader's terminal."""

from __future__ import annotations

import re

import pytest

from perago.runtime.observe.sanitize import overwritten, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab, žluťoučký 🎉", "two\nlines\tand a tab, žluťoučký 🎉"),
        ("\x1b[31mred\x1b[0m and plain", "red and plain"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b[?1049hother screen", "other screen"),
        ("\x9b2Jgone", "gone"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPstring\x1b\\text", "text"),
        ("reset \x1bc", "reset \\x1bc"),
        ("unfinished \x1b]0;title", "unfinished \\x1b]0;title"),
        ("unfinished \x1b[31", "unfinished \\x1b[31"),
        ("bell\x07 back\x08 del\x7f nul\x00", "bell\\x07 back\\x08 del\\x7f nul\\x00"),
        ("clean: FAILED: x\rclean: COMPLETED", "clean: FAILED: x\\rclean: COMPLETED"),
        ("ended so\r\nand so", "ended so\nand so"),
    ],
)
def test_what_would_control_a_terminal_is_gone_or_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_colours_stay_where_they_are_wanted_and_end_with_the_text() -> None:
    assert printable("\x1b[1;31mred\x1b[2K", styles=True) == "\x1b[1;31mred\x1b[0m"
    assert printable("plain", styles=True) == "plain"


def test_no_character_of_control_is_left_of_any_two() -> None:
    controls = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]

    left = [
        printable(f"a{one}{other}b") for one in controls for other in [*controls, "[", "]", "c", "P", "\\"]
    ]

    assert not [text for text in left if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)]


def test_a_progress_bar_is_what_it_drew_last() -> None:
    assert overwritten("10 %\r20 %\r30 %\r") == "30 %"
    assert overwritten("no bar") == "no bar"
    assert overwritten("\r") == ""
