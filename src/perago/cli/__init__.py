"""The `perago` command: parse, call, print.  One file per command; the errors of all are told in one place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from perago import __version__
from perago.cli import output
from perago.cli.terminal import tidy
from perago.errors import PeragoError, RuntimeConfigError
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.process.process_setup import mark_main_program
from perago.settings import load_settings, unknown_settings

# Typer brings its own copy of click along, or not, by its version: this is the class in both.
_UsageError: Any = typer.BadParameter.__mro__[1]


_COMMANDS = {
    "init": "init",
    "check": "check",
    "extract": "extract",
    "run": "run",
    "map": "map_",
    "runs": "app",
    "show": "show",
    "logs": "logs",
    "ui": "ui",
    "put": "put",
    "branch": "branch",
    "history": "history",
    "diff": "diff",
    "ls": "ls",
    "cat": "cat",
    "register": "register",
    "start": "start",
    "submit": "submit",
    "fence": "app",
    "sweep": "sweep",
    "doctor": "doctor",
}
"""What each is called in its module, in the order of `--help` and of docs/commands.md: declare, run here, look, then work
with servers."""


class _Loading(Mapping[str, Any]):
    """The commands by name; each is loaded when it is asked for, since most processes run one."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


@cache
def _load(name: str) -> Any:
    """The command of a name, or the group of commands."""
    called = _COMMANDS[name]
    found = getattr(import_module(f"perago.cli.{name}"), called)
    around = typer.Typer()
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
    else:
        around.command(name)(found)
    return get_group(around).commands[name]


class _Commands(TyperGroup):
    """The commands; what any of them raises on purpose is told in one line, without a traceback."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": _Loading()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            tidy(found, ctx)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names; typer would load them all for that."""
        del ctx
        return list(_COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        tidy(self, ctx)
        super().format_help(ctx, formatter)

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        with _usage_told():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _usage_told():
            try:
                return super().invoke(ctx)
            except PeragoError as error:
                output.fail(_without_secrets(str(error)))


@contextmanager
def _usage_told() -> Iterator[None]:
    """A wrong command line is told in one line as well, with the page that says how it goes."""
    try:
        yield
    except _UsageError as error:
        # Whoever gives no command at all gets the page itself.
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        path = error.ctx.command_path if error.ctx is not None else "perago"
        text = " ".join(error.format_message().split())
        for lead in ("Invalid value: ", "Value error, "):
            text = text.replace(lead, "", 1)
        stop = " " if text.endswith("?") else "; "
        output.refuse(f"{text.rstrip('.')}{stop}`{path} --help` explains the usage")


def _without_secrets(text: str) -> str:
    """An error's text, which may quote a server, and the server what it was sent."""
    try:
        settings = load_settings(os.environ, remote=True)
    except RuntimeConfigError:
        # Then this is the error, and no server has been asked anything.
        return text
    return Masker(secrets_of(settings))(text)


app = typer.Typer(
    name="perago",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run typed Python tasks for Conductor workflows, on data that lives in lakeFS.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    # The doctor has a line of its own for each.
    for text in unknown_settings(os.environ) if context.invoked_subcommand != "doctor" else ():
        output.warn(text)


def main() -> None:
    """The entry point of the `perago` script."""
    mark_main_program()
    app()
