"""Whether the orchestrator would take a result: asked while nothing is published yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perago.errors import TaskInputError


def check_size(result: Mapping[str, Any], most: int | None) -> None:
    """Refuse a result that is no JSON text, or one of more than `most` bytes."""
    try:
        size = len(json.dumps(result, ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 40) : error.end]
        raise TaskInputError(
            f"the result holds text that is not valid Unicode, near {near!r}: if it is a file name, decode it with "
            "os.fsencode(name).decode(errors='replace')"
        ) from None
    if most is not None and size > most:
        raise TaskInputError(
            f"the result is {size} bytes of JSON, and {most} are the most that Conductor takes: put bulk into the "
            "workspace and return where it is"
        )
