"""What `perago run` is given: read and checked before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from perago.errors import RuntimeConfigError


def read_import(item: str) -> tuple[str, Path]:
    """The two parts of --import."""
    name, separator, folder = item.partition("=")
    if not separator or not name or not folder:
        raise typer.BadParameter(f"--import takes REPO=DIR, not {item!r}")
    return name, Path(folder)


def read_definition(file: Path) -> dict[str, Any]:
    """The workflow's definition."""
    if not file.is_file():
        raise RuntimeConfigError(f"{file} is not a file")
    definition = _read_object(file.read_text(encoding="utf-8"), str(file))
    if not isinstance(definition.get("name"), str):
        raise RuntimeConfigError(f"{file} is no workflow definition: it has no name")
    return definition


def read_payload(given: str) -> dict[str, Any]:
    """The workflow's input."""
    text = given if given.lstrip().startswith(("{", "[")) else None
    if text is None and not Path(given).is_file():
        raise RuntimeConfigError(f"--input {given!r} is neither JSON nor a file")
    return _read_object(text or Path(given).read_text(encoding="utf-8"), "--input")


def _read_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RuntimeConfigError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RuntimeConfigError(f"{what} must be a JSON object, not {type(value).__name__}")
    return value
