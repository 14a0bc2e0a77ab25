"""Whether the orchestrator would take a result: asked while nothing is published yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perago.errors import TaskResultError
from perago.protocol.paths import has_nul


def check_size(result: Mapping[str, Any], most: int | None) -> None:
    """Refuse a result that is no JSON text, that no database keeps, or that has more than `most` bytes."""
    for place in _with_nul("result", result):
        raise TaskResultError(
            f"{place} holds U+0000, which Conductor cannot keep on PostgreSQL: take it out, with text.replace('\\0', '')"
        )
    try:
        size = len(json.dumps(result, ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 40) : error.end]
        raise TaskResultError(
            f"the result holds text that is not valid Unicode, near {near!r}: if it is a file name, decode it with "
            "os.fsencode(name).decode(errors='replace')"
        ) from None
    if most is not None and size > most:
        raise TaskResultError(
            f"the result is {size} bytes of JSON, and {most} are the most that Conductor takes: put bulk into the "
            "workspace and return where it is"
        )


def _with_nul(path: str, value: object) -> Iterator[str]:
    """The places of strings and keys with U+0000."""
    if isinstance(value, str):
        if has_nul(value):
            yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if has_nul(name):
                yield f"the key {name!r} of {path}"
            yield from _with_nul(f"{path}.{name}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _with_nul(f"{path}[{number}]", item)
