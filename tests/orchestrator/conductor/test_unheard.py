"""Tasks of which an update got no answer."""

from __future__ import annotations

import pytest

from perago.errors import OrchestratorRefused, OrchestratorUnavailable
from perago.orchestrator.conductor.orchestrator import MOST, Unheard


def miss(unheard: Unheard, task_id: str) -> None:
    with pytest.raises(OrchestratorUnavailable), unheard.noting(task_id):
        raise OrchestratorUnavailable("no answer")


def test_an_update_that_was_answered_is_not_noted_and_does_not_clear_one_that_was_not() -> None:
    unheard = Unheard()
    with unheard.noting("answered"):
        pass
    with pytest.raises(OrchestratorRefused), unheard.noting("refused"):
        raise OrchestratorRefused("an answer too")
    miss(unheard, "missed")
    with unheard.noting("missed"):
        pass

    assert [name in unheard for name in ("answered", "refused", "missed")] == [False, False, True]


def test_the_oldest_are_forgotten() -> None:
    unheard = Unheard()
    for number in range(MOST + 2):
        miss(unheard, str(number))

    assert [str(number) in unheard for number in (0, 1, 2, MOST + 1)] == [False, False, True, True]
