"""How `--help` shows options and arguments: a flag takes no value, so no type stands beside it.

Typer writes `<bool>` beside flags and `<str>` beside arguments, whose name and text say it better, and braces around
arguments that are required.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tidy(command: Any, ctx: Any) -> None:
    """Take the types that say nothing off a command's help, and off that of the commands below it."""
    for parameter in command.get_params(ctx):
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
            parameter.get_usage_pieces = _usage(parameter)
        elif parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else _metavar(parameter, ctx)
    for inner in getattr(command, "commands", {}).values():
        tidy(inner, ctx)


def _metavar(option: Any, ctx: Any) -> str | None:
    """What stands for an option's value where the command names none: a number is N, choices are listed."""
    return "N" if str(option.display_type_rich(ctx)).startswith("<int") else None


def _usage(argument: Any) -> Callable[[Any], list[str]]:
    """How a usage line names an argument: as docs do."""
    name = argument.metavar
    text = f"{name}…" if argument.nargs == -1 and "…" not in name and " " not in name else name
    return lambda ctx: [text if argument.required or text.startswith("[") else f"[{text}]"]


def _no_type(ctx: Any) -> None:
    """What typer asks an argument for."""
