"""A worker that serves until a signal sends the traces of its attempts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from perago.protocol.attempt import Attempt
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import PendingResult
from perago.runtime.observe.events import Event
from perago.runtime.observe.health import HealthState
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.supervisor import Supervisor, serve
from perago.settings import load_settings
from tests.support.servers.otlp_receiver import collecting
from tests.support.servers.scripted_orchestrator import NoBackend

ATTEMPT = Attempt("wf-1", "task-1", "clean", "clean", retry_count=1, seq=1, iteration=0)


class Worker:
    """A worker whose executor dies in the only attempt."""

    health_state = HealthState([])

    def run(self, *, on_event: Callable[[Event], None]) -> int:
        pending = PendingResult("e-1", ATTEMPT, Outcome("FAILED", reason="died"))
        on_event(Event("polled", ATTEMPT, "e-1"))
        on_event(Event("step", ATTEMPT, "e-1", "body"))
        on_event(Event("died", ATTEMPT, "e-1", "body", text="signal SIGKILL"))
        on_event(Event("accepted", ATTEMPT, "e-1", pending=pending, died=True))
        return 0


def served(root: Path, environ: dict[str, str]) -> int:
    settings = load_settings({"PERAGO_ROOT": str(root), **environ})
    plan = WorkerPlan({}, 1, ExecutorSpec(NoBackend(settings), (), ()), "worker-1")
    worker: Any = Worker()
    return serve(plan, cast(Supervisor, worker), http=None, environ=environ)


def test_the_attempt_of_a_killed_executor_has_its_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        endpoint = f"{collector.url}/v1/traces"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint)
        assert served(tmp_path, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint}) == 0

        [attempt] = collector.named("attempt clean")
        [body] = collector.below(attempt)
    assert (attempt.failed, attempt.message) == (True, "the executor died: signal SIGKILL")
    assert (attempt.attributes["perago.status"], attempt.attributes["perago.step"]) == ("DIED", "body")
    assert (body.name, body.failed) == ("body", True)


def test_without_a_collector_nothing_is_sent(tmp_path: Path) -> None:
    assert served(tmp_path, {}) == 0
