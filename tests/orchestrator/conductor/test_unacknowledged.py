"""Tasks of which an update got no answer."""

from __future__ import annotations

import pytest

from perago.errors import OrchestratorRefused, OrchestratorUnavailable
from perago.orchestrator.conductor.orchestrator import MOST_UNACKNOWLEDGED, Unacknowledged


def miss(unacknowledged: Unacknowledged, task_id: str) -> None:
    with pytest.raises(OrchestratorUnavailable), unacknowledged.noting(task_id):
        raise OrchestratorUnavailable("no answer")


def test_an_update_that_was_answered_is_not_noted_and_does_not_clear_one_that_was_not() -> None:
    unacknowledged = Unacknowledged()
    with unacknowledged.noting("answered"):
        pass
    with pytest.raises(OrchestratorRefused), unacknowledged.noting("refused"):
        raise OrchestratorRefused("an answer too")
    miss(unacknowledged, "missed")
    with unacknowledged.noting("missed"):
        pass

    assert [name in unacknowledged for name in ("answered", "refused", "missed")] == [False, False, True]


def test_the_oldest_are_forgotten() -> None:
    unacknowledged = Unacknowledged()
    for number in range(MOST_UNACKNOWLEDGED + 2):
        miss(unacknowledged, str(number))

    assert [str(number) in unacknowledged for number in (0, 1, 2, MOST_UNACKNOWLEDGED + 1)] == [
        False,
        False,
        True,
        True,
    ]
