"""Results that outlive their worker, and the version that wrote them."""

from __future__ import annotations

import json
from pathlib import Path

from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import PendingResult
from perago.runtime.worker.outbox import Outbox
from tests.support.servers.scripted_orchestrator import an_attempt


def test_a_result_that_another_version_wrote_with_more_or_fewer_fields_is_read(tmp_path: Path) -> None:
    written = PendingResult("execution", an_attempt(), Outcome("COMPLETED"))
    Outbox(tmp_path).put(written)
    file = tmp_path / "outbox" / "execution.json"
    data = json.loads(file.read_text())
    data["attempt"]["workflow_colour"] = "blue"
    del data["attempt"]["workflow_name"]
    file.write_text(json.dumps(data))

    assert list(Outbox(tmp_path).unsent()) == [written]
