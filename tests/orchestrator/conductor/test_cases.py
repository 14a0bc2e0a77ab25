"""The same workflow ends the same on both orchestrators, task by task.

The embedded one is compared with the recording; the real server is played again, so that the recording stays true.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago.orchestrator.local.orchestrator import LocalOrchestrator
from tests.orchestrator.conductor.cases import Case, load_cases, play

CASES = load_cases()
IDS = [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_embedded_orchestrator_ends_it_as_conductor_did(case: Case, tmp_path: Path) -> None:
    with closing(LocalOrchestrator(tmp_path / "orchestrator.db")) as orchestrator:
        assert play(orchestrator, case) == case.expected


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_conductor_still_ends_it_as_recorded(case: Case, conductor_server: Any) -> None:
    from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator

    with closing(ConductorOrchestrator(conductor_server.url)) as orchestrator:
        assert play(orchestrator, case) == case.expected
