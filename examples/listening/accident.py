"""The accident of the demonstration: the executor is killed right after its publication became visible.

That is the worst moment: the branch has moved, and Conductor has not heard of it.  Nothing in Perago helps with it: the
publisher of this process is changed from outside, so that SIGKILL follows as soon as something is published.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perago.runtime.attempt.publish_decision import Published
from perago.runtime.attempt.publisher import Publisher


class Accident(BaseModel):
    """Kill who finds `file` (it is removed, so that it happens once) when something other than `ref` is published."""

    file: str | None
    ref: str


def prepare(accident: Accident) -> None:
    """Have this process die once the body has returned and its result is published."""
    if accident.file is None or not Path(accident.file).exists():
        return
    Path(accident.file).unlink()
    carry_out = Publisher.carry_out

    def carry_out_and_die(publisher: Publisher, *arguments: Any) -> Published:
        published = carry_out(publisher, *arguments)
        if published.ref != accident.ref:
            os.kill(os.getpid(), signal.SIGKILL)
        return published

    Publisher.carry_out = carry_out_and_die  # type: ignore[method-assign]
