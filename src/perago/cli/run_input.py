"""What `perago run` is given: read and checked before anything is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perago.errors import RuntimeConfigError
from perago.settings import Settings

if TYPE_CHECKING:
    from perago.lake.base import Lake


def uses_embedded(settings: Settings, root: Path | None) -> bool:
    """Whether the embedded servers are meant: by --root, or because no real ones are configured."""
    if root is not None or (settings.lakefs is None and settings.conductor is None):
        return True
    if settings.lakefs is None or settings.conductor is None:
        missing = "lakeFS (LAKECTL_*)" if settings.lakefs is None else "Conductor (CONDUCTOR_SERVER_URL)"
        raise RuntimeConfigError(
            f"{missing} is not configured but the other server is: configure both, or use the embedded ones with --root"
        )
    return False


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


def read_payload(given: str, workspace: str | None, lake: Lake) -> dict[str, Any]:
    """The workflow's input, with the workspace put in where it is asked for."""
    text = given if given.lstrip().startswith(("{", "[")) else None
    if text is None and not Path(given).is_file():
        raise RuntimeConfigError(f"--input {given!r} is neither JSON nor a file")
    payload = _read_object(text or Path(given).read_text(encoding="utf-8"), "--input")
    if workspace is not None:
        repository, _, branch = workspace.partition("@")
        branch = branch or "main"
        head = lake.head(repository, branch).id
        payload["workspace"] = {"repository": repository, "branch": branch, "ref_type": "commit", "ref": head}
    return payload


def check_known(definition: Mapping[str, Any], known: set[str]) -> None:
    """Every SIMPLE task of the workflow must be in the modules, or it would wait for ever."""
    missing = sorted(_simple_tasks(definition.get("tasks", [])) - known)
    if missing:
        raise RuntimeConfigError(
            f"the workflow names tasks that no --tasks module declares: {', '.join(missing)}; "
            f"declared are {', '.join(sorted(known))}"
        )


def _simple_tasks(node: Any) -> set[str]:
    if isinstance(node, list):
        return {name for item in node for name in _simple_tasks(item)}
    if not isinstance(node, Mapping):
        return set()
    nested: set[str] = set()
    for field in ("loopOver", "forkTasks", "defaultCase"):
        nested |= _simple_tasks(node.get(field, []))
    for case in (node.get("decisionCases") or {}).values():
        nested |= _simple_tasks(case)
    return nested | ({node["name"]} if node.get("type", "SIMPLE") == "SIMPLE" and "name" in node else set())


def _read_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RuntimeConfigError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RuntimeConfigError(f"{what} must be a JSON object, not {type(value).__name__}")
    return value
