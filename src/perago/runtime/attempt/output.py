"""What an attempt answers with: the workspace's new ref and its result, or the one that was recorded for equal work."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from perago.declare.author_code import author_code
from perago.declare.task import TaskDefinition
from perago.protocol.policies import SUPERSEDE
from perago.protocol.signing import recordable
from perago.runtime.attempt.input import workspace_output
from perago.runtime.attempt.result import Published

log = logging.getLogger("perago.transaction")


def to_record(result: Mapping[str, Any]) -> str | None:
    """The result as a publication keeps it for reuse, or None where it is too large."""
    text = recordable(result)
    if text is None:
        log.warning(
            "the result is too large to be recorded for reuse: the policy is %s this time", SUPERSEDE.name
        )
    return text


def output_of(
    task: TaskDefinition, given: Mapping[str, str], published: Published, result: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The output, its workspace spelled like the given one; a recorded result goes through the result model again."""
    if published.recorded is not None:
        log.info("answering with the result that %s records", published.ref)
        with author_code("the result model"):
            result = task.dump_result(task.parse_result(published.recorded))
    return {"workspace": workspace_output(given, published.ref), "result": result}
