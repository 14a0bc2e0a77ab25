"""The `perago` command line.

Each command has its own module.  Errors from all of them are printed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from perago import __version__
from perago.cli import output
from perago.errors import PeragoError, RuntimeConfigError
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.process.process_setup import mark_main_program
from perago.settings import load_settings, unknown_settings

# Some versions of Typer contain their own copy of click. This expression finds the class in either case.
_UsageError: Any = typer.BadParameter.__mro__[1]

_COMMANDS = {
    "init": "init",
    "check": "check",
    "extract": "extract",
    "run": "run",
    "plan": "plan",
    "map": "map_",
    "backfill": "backfill",
    "partitions": "partitions",
    "runs": "app",
    "show": "show",
    "logs": "logs",
    "ui": "ui",
    "put": "put",
    "get": "get",
    "branch": "branch",
    "dev": "dev",
    "merge": "merge",
    "restore": "restore",
    "history": "history",
    "blame": "blame",
    "reproduce": "reproduce",
    "diff": "diff",
    "ls": "ls",
    "cat": "cat",
    "gc": "gc",
    "register": "register",
    "start": "start",
    "submit": "submit",
    "schedule": "app",
    "retry": "workflow_control.retry",
    "pause": "workflow_control.pause",
    "resume": "workflow_control.resume",
    "terminate": "workflow_control.terminate",
    "fence": "app",
    "sweep": "sweep",
    "doctor": "doctor",
}
"""The name of the object that implements each command, in the module with the command's name unless another is given.

The order is that of `--help` and docs/commands.md: first commands for declarations, then for local runs, for
inspection, and for servers.
"""


class _LazyCommands(Mapping[str, Any]):
    """The commands, keyed by name. Each is loaded on first use, because most processes run only one."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


@cache
def _load(name: str) -> Any:
    """Return the command or group of commands with this name."""
    module, _, called = _COMMANDS[name].rpartition(".")
    found = getattr(import_module(f"perago.cli.{module or name}"), called)
    around = typer.Typer()
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
    else:
        around.command(name)(found)
    return get_group(around).commands[name]


class _Commands(TyperGroup):
    """The group of all commands. A `PeragoError` from any of them is printed on one line, without a traceback."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": _LazyCommands()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            _tidy(found, ctx)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands. Typer's own method would load every command."""
        del ctx
        return list(_COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _tidy(self, ctx)
        super().format_help(ctx, formatter)

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        with _printing_usage_errors():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _printing_usage_errors():
            try:
                return super().invoke(ctx)
            except PeragoError as error:
                output.fail(_without_secrets(str(error)))


def _tidy(command: Any, ctx: Any) -> None:
    """Remove uninformative types from the help of a command and its subcommands.

    Typer writes `<bool>` after flags, `<str>` after arguments, and braces around required arguments.  The names and
    help texts are clearer.
    """
    for parameter in command.get_params(ctx):
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
            parameter.get_usage_pieces = _usage(parameter)
        elif parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else _metavar(parameter, ctx)
    for inner in getattr(command, "commands", {}).values():
        _tidy(inner, ctx)


def _metavar(option: Any, ctx: Any) -> str | None:
    """Return the placeholder for an option without a metavar: `N` for a number.

    Returns None for any other option, so that typer lists the option's choices.
    """
    return "N" if str(option.display_type_rich(ctx)).startswith("<int") else None


def _usage(argument: Any) -> Callable[[Any], list[str]]:
    """Return a function that formats an argument for a usage line, in the same style as the docs."""
    name = argument.metavar
    text = f"{name}…" if argument.nargs == -1 and "…" not in name and " " not in name else name
    return lambda ctx: [text if argument.required or text.startswith("[") else f"[{text}]"]


def _no_type(ctx: Any) -> None:
    """Return None, so that typer shows no type for an argument."""


@contextmanager
def _printing_usage_errors() -> Iterator[None]:
    """Print each command-line error on one line, with the command that shows the usage."""
    try:
        yield
    except _UsageError as error:
        # If no command was given, the help page itself is shown.
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        path = error.ctx.command_path if error.ctx is not None else "perago"
        text = " ".join(error.format_message().split())
        for lead in ("Invalid value: ", "Value error, "):
            text = text.replace(lead, "", 1)
        stop = " " if text.endswith("?") else "; "
        output.refuse(f"{text.rstrip('.')}{stop}`{path} --help` explains the usage")


def _without_secrets(text: str) -> str:
    """Mask secrets in an error's text.

    The text may quote a server's response, and the response may quote the request.
    """
    try:
        settings = load_settings(os.environ, remote=True)
    except RuntimeConfigError:
        # The settings themselves are invalid, so no server was called.
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
    # `doctor` reports unknown settings itself.
    for text in unknown_settings(os.environ) if context.invoked_subcommand != "doctor" else ():
        output.warn(text)


def main() -> None:
    """Run the `perago` command line."""
    mark_main_program()
    app()
