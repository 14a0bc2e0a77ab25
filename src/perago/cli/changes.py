"""How changes of definitions are shown: a line each, and below it every field with what was there and what comes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from perago.runtime.registration import Change
from perago.runtime.workflows.registration import WorkflowChange

_DONE = {"create": "created", "update": "updated", "keep": "unchanged"}
_PLANNED = {"create": "would be created", "update": "would be updated", "keep": "unchanged"}


def shown_changes(
    changes: Iterable[Change], workflows: Iterable[WorkflowChange], *, planned: bool
) -> Iterator[tuple[str, str]]:
    """Lines with their styles; `planned` where nothing has been changed yet."""
    words = _PLANNED if planned else _DONE
    for change in changes:
        yield f"{change.name}: {words[change.action]}", "bold"
        yield from _diff(change.fields)
    for workflow in workflows:
        yield f"workflow {workflow.name} version {workflow.version}: {words[workflow.action]}", "bold"
        yield from _diff(workflow.fields)


def _diff(fields: Iterable[tuple[str, Any, Any]]) -> Iterator[tuple[str, str]]:
    for path, new, old in fields:
        if old is not None:
            yield f"  - {path}: {json.dumps(old, ensure_ascii=False)}", "red"
        if new is not None:
            yield f"  + {path}: {json.dumps(new, ensure_ascii=False)}", "green"
