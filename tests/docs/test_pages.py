"""Following a page of the documentation reveals each of its errors (`tests/support/docs`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.docs.doc_output import Command, compare
from tests.support.docs.pages import Written, follow, steps

SHOWN = (
    "clean: COMPLETED after 0.1 s songs main 04ad7c34…",
    "…",
    "log: …/.perago/runs/20261116-200527-0c798f131/run.log",
)
PRINTED = f"""clean: SCHEDULED
clean: IN_PROGRESS
clean: COMPLETED after 12.5 s   songs main {"1" * 64}
one
two
log: /home/ana/.perago/runs/20270101-000000-fffffffff/run.log
"""


def page(*blocks: str) -> str:
    return "\n\n".join(f"```{block}\n```" for block in blocks) + "\n"


def test_values_that_differ_between_runs_and_cut_lines_are_not_compared() -> None:
    compare(Command("perago run", SHOWN), PRINTED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("clean: COMPLETED", "clean: FAILED"),
        ("songs main", "songs dev"),
        ("log: ", "warning: a line that the page does not have\nlog: "),
        ("run.log\n", "run.log\nand one more\n"),
        ("clean: COMPLETED after", "and one before\nclean: COMPLETED after"),
    ],
)
def test_any_other_difference_is_found(old: str, new: str) -> None:
    shown = tuple(line for line in SHOWN if line != "…")
    printed = PRINTED.replace("one\ntwo\n", "")
    compare(Command("perago run", shown), printed)

    with pytest.raises(AssertionError, match="prints something else"):
        compare(Command("perago run", shown), printed.replace(old, new))


def test_blocks_of_one_name_are_one_file_and_a_diff_changes_it() -> None:
    text = page("python a.py\nx = 1", "python a.py\ny = 2", "diff a.py\n x = 1\n-y = 2\n+y = 3")

    assert list(steps(text)) == [
        Written("a.py", "x = 1\n"),
        Written("a.py", "x = 1\ny = 2\n"),
        Written("a.py", "x = 1\ny = 3\n"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        page("python\nx = 1"),
        page("\nmake test"),
        page("python a.py\nx = 1", "diff a.py\n-y = 1\n+y = 2"),
        "- indented\n  ```console\n  $ true\n  ```\n",
    ],
    ids=["no name", "no kind", "a diff of something else", "indented"],
)
def test_a_block_that_nothing_runs_is_an_error(text: str) -> None:
    with pytest.raises(AssertionError):
        list(steps(text))


def test_commands_run_in_one_shell_between_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    text = page(
        "csv in/a.csv\none",
        "console\n$ cd in\n$ cat a.csv\none",
        "csv in/a.csv\ntwo",
        "console\n$ wc -l < a.csv\n2",
    )

    assert follow(text, folder, os.environ) == 3


@pytest.mark.parametrize(
    ("console", "wrong"),
    [
        ("$ false", "`false` ended with 1"),
        ("$ false\n$ true", "`false` ended with 1"),
        ("$ (exit 3)\n$ echo $?\n2", "prints something else"),
        ("$ echo one\ntwo", "prints something else"),
    ],
)
def test_a_command_that_fails_or_prints_something_else_is_found(
    console: str, wrong: str, tmp_path: Path
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()

    with pytest.raises(AssertionError, match=wrong):
        follow(page(f"console\n{console}"), folder, os.environ)


def test_an_exit_code_that_the_page_shows_is_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()

    assert follow(page("console\n$ (exit 3)\n$ echo $?\n3"), folder, os.environ) == 2
