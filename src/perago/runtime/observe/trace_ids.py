"""The ids of a trace, which every process derives from what it already knows.

One workflow is one trace, whichever workers run its attempts, so its trace id and the id of its root span come from the
workflow instance id.  The span of an attempt has an id from the execution id.  So a span's parent is known before the
parent is sent, even if the process that should have sent it is dead, and log lines can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256


def trace_id_of(workflow_id: str) -> int:
    """Return the trace id of a workflow: the first 16 bytes of the SHA-256 of its instance id."""
    return _number("", workflow_id, 16)


def root_span_id_of(workflow_id: str) -> int:
    """Return the id of the span that stands for a whole workflow."""
    return _number("workflow ", workflow_id, 8)


def attempt_span_id_of(execution_id: str) -> int:
    """Return the id of the span of one execution of an attempt."""
    return _number("execution ", execution_id, 8)


def trace_fields(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the fields that a log line with these fields of an attempt gets, as lower-case hex digits."""
    if "workflow" not in fields or "execution" not in fields:
        return {}
    return {
        "trace_id": f"{trace_id_of(str(fields['workflow'])):032x}",
        "span_id": f"{attempt_span_id_of(str(fields['execution'])):016x}",
    }


def _number(kind: str, text: str, size: int) -> int:
    return int.from_bytes(sha256(f"{kind}{text}".encode()).digest()[:size], "big")
