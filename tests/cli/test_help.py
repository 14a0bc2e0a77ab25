"""Every command, found by walking the app, explains itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from perago import __version__
from perago.cli import app


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


PATHS = list(commands(get_command(app)))


def test_the_walk_finds_the_commands() -> None:
    assert {("check",), ("extract",), ("register",)} <= set(PATHS)


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_a_command_explains_itself(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*path, "--help"])

    assert done.exit_code == 0, done.output
    assert "Usage" in done.output


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_names_no_type_where_the_name_says_it(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*path, "--help"])

    assert [
        word for word in ("<bool>", "<str>", "<int", "<list", "<path>", "[[") if word in done.output
    ] == []


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_a_command_says_in_a_sentence_what_it_does(path: tuple[str, ...]) -> None:
    command = get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]

    assert command.help, f"perago {' '.join(path)} has no help text"


def test_a_command_is_loaded_without_the_others() -> None:
    script = (
        "import sys; from perago.cli import app; app(['cat', '--help'], standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    names = {path[0] for path in PATHS if path}
    assert {name for name in names if f"perago.cli.{name}" in done.stderr.split()} == {"cat"}


def test_an_unknown_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["check", "--no-such-option"]).exit_code == 2
    assert CliRunner().invoke(app, ["check"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (("check", "--help"), "perago check [OPTIONS] TARGET… [WORKFLOW…]"),
        (("extract", "--help"), "perago extract [OPTIONS] TARGET…"),
        (("sweep", "--help"), "perago sweep [OPTIONS] [REPO…]"),
        (("ls", "--help"), "perago ls [OPTIONS] REPO[@REF] [REF] [PREFIX]"),
        (("cat", "--help"), "perago cat [OPTIONS] REPO[@REF] [REF] PATH"),
        (("branch", "--help"), "perago branch [OPTIONS] REPO [NAME] [FROM]"),
    ],
)
def test_a_usage_line_names_arguments_as_docs_do(arguments: tuple[str, ...], usage: str) -> None:
    done = CliRunner().invoke(app, list(arguments), prog_name="perago")

    assert f"Usage: {usage}" in [line.strip() for line in done.output.splitlines()]


def test_commands_are_listed_in_the_order_of_their_page() -> None:
    docs = Path(__file__).parents[2] / "docs"
    groups = [f"commands-{group}.md" for group in ("author", "runs", "lake", "servers")]
    index, *pages = [(docs / name).read_text() for name in ("commands.md", *groups)]
    explained = re.compile(r"^(?:## |\| )`perago ([a-z]+)\b", re.MULTILINE)
    listed = get_command(app).list_commands(None)  # type: ignore[attr-defined]

    assert list(dict.fromkeys(explained.findall(index))) == listed
    assert sorted(set(explained.findall("\n".join(pages)))) == sorted(listed)


def test_ctrl_c_while_the_command_is_loaded_prints_no_traceback() -> None:
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'perago.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from perago.__main__ import main\n"
        "main()\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == __version__


@pytest.mark.slow
def test_the_command_starts_without_an_sdk_or_rich() -> None:
    heavy = {"conductor", "lakefs_sdk", "obstore", "pyspark", "opentelemetry", "rich", "httpx", "requests"}
    script = f"import sys, perago.cli; print(sorted(set({sorted(heavy)}) & sys.modules.keys()))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr
