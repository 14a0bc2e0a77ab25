"""Every command, found by walking the app, explains itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
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


def test_an_unknown_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["check", "--no-such-option"]).exit_code == 2
    assert CliRunner().invoke(app, ["check"]).exit_code == 2


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == __version__


@pytest.mark.slow
def test_the_command_starts_without_an_sdk_or_rich() -> None:
    heavy = {"conductor", "lakefs_sdk", "obstore", "pyspark", "opentelemetry", "rich", "httpx", "requests"}
    script = f"import sys, perago.cli; print(sorted(set({sorted(heavy)}) & sys.modules.keys()))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr
