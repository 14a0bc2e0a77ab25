"""The accident in the demo: the executor is killed right after its publication became visible.

That is the worst moment: the branch has moved, but Conductor does not know yet.  Perago has no support for such
accidents: the publisher in this process is patched from outside, so that SIGKILL follows as soon as something is
published.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perago.runtime.attempt.publish_decision import Published, RetryAfter
from perago.runtime.attempt.publisher import Publisher


class Accident(BaseModel):
    """Kills the process that finds `file`, once it has published something other than `ref`.

    The file is removed, so that this happens only once.
    """

    file: str | None
    ref: str


def prepare(accident: Accident) -> None:
    """Make this process die once the body has returned and its result is published."""
    if accident.file is None or not Path(accident.file).exists():
        return
    Path(accident.file).unlink()
    execute = Publisher.execute

    def execute_and_die(publisher: Publisher, *arguments: Any) -> Published | RetryAfter:
        published = execute(publisher, *arguments)
        if isinstance(published, Published) and published.ref != accident.ref:
            os.kill(os.getpid(), signal.SIGKILL)
        return published

    Publisher.execute = execute_and_die  # type: ignore[method-assign]
