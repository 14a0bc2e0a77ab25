"""The `perago` command: parse, call, print.  One file per command; the errors of all are told in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perago import __version__
from perago.cli import (
    branch,
    cat,
    check,
    diff,
    doctor,
    extract,
    fence,
    history,
    init,
    logs,
    ls,
    map,
    output,
    put,
    register,
    run,
    runs,
    show,
    start,
    submit,
    sweep,
    ui,
)
from perago.cli.help_page import tidy
from perago.errors import PeragoError, RuntimeConfigError
from perago.runtime.observe.masking import Masker, secrets_of
from perago.runtime.process.program import is_ours
from perago.settings import load_settings, unknown_settings

# Typer brings its own copy of click along, or not, by its version: this is the class in both.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Commands(TyperGroup):
    """The commands; what any of them raises on purpose is told in one line, without a traceback."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            tidy(found, ctx)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of `_COMMANDS`, and not with the groups at the end."""
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


_COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "init": init.init,
    "check": check.check,
    "extract": extract.extract,
    "run": run.run,
    "map": map.map_,
    "runs": runs.app,
    "show": show.show,
    "logs": logs.logs,
    "ui": ui.ui,
    "put": put.put,
    "branch": branch.branch,
    "history": history.history,
    "diff": diff.diff,
    "ls": ls.ls,
    "cat": cat.cat,
    "register": register.register,
    "start": start.start,
    "submit": submit.submit,
    "fence": fence.app,
    "sweep": sweep.sweep,
    "doctor": doctor.doctor,
}
"""In the order of `--help` and of docs/commands.md: declare, run here, look, then work with servers."""

for _name, _command in _COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


def main() -> None:
    """The entry point of the `perago` script."""
    is_ours()
    app()
