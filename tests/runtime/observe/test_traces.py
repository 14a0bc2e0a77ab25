"""Spans of a worker's events, and what a collector that takes nothing costs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from perago.protocol.attempt import Attempt
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import PendingResult
from perago.runtime.observe.call_recorder import MOST_CALLS, CallRecorder, CallTimes, StepTimes
from perago.runtime.observe.events import Event
from perago.runtime.observe.traces import LAST_SEND_SECONDS, NoTraces, open_traces
from perago.settings import load_settings
from tests.support.servers.otlp_receiver import collecting

ATTEMPT = Attempt("wf-1", "task-1", "clean", "clean", retry_count=1, seq=1, iteration=0)
SECRET = "very-secret"


@dataclass
class Server:
    """A port with a call of each kind."""

    address: str = "here"

    def ask(self, number: int) -> int:
        return number + 1

    def fail(self) -> None:
        raise LookupError("gone")

    def pages(self) -> Iterator[int]:
        yield 1
        raise TimeoutError


def sending(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> Any:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **more}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    servers = {
        "CONDUCTOR_SERVER_URL": "http://c/api",
        "CONDUCTOR_AUTH_KEY": "k",
        "CONDUCTOR_AUTH_SECRET": SECRET,
    }
    return open_traces(environ, load_settings({**environ, **servers}), worker_id="w")


def end(traces: NoTraces, outcome: Outcome, execution: str = "e-1") -> None:
    pending = PendingResult(execution, ATTEMPT, outcome)
    traces.on_event(Event("accepted", ATTEMPT, execution, pending=pending))


def test_calls_are_recorded_in_the_step_in_which_they_end_and_behave_as_before() -> None:
    told: list[StepTimes] = []
    recorder = CallRecorder(told.append)
    port = recorder.watch(Server(), "lake")

    recorder.begin("download")
    assert port.address == "here"
    assert port.ask(1) == 2
    pages = port.pages()
    recorder.begin("body")
    with pytest.raises(LookupError):
        port.fail()
    with pytest.raises(TimeoutError):
        list(pages)
    recorder.close()
    port.ask(2)
    recorder.begin("cleanup")
    recorder.close()

    assert [step.step for step in told] == ["download", "body"]
    assert [[(call.name, call.error) for call in step.calls] for step in told] == [
        [("lake.ask", "")],
        [("lake.fail", "LookupError"), ("lake.pages", "TimeoutError")],
    ]
    for step in told:
        assert step.began <= step.ended
        assert all(call.began <= call.ended <= step.ended for call in step.calls)


def test_the_calls_of_a_step_are_limited() -> None:
    told: list[StepTimes] = []
    recorder = CallRecorder(told.append)
    port = recorder.watch(Server(), "lake")
    recorder.begin("body")
    for number in range(MOST_CALLS + 3):
        port.ask(number)
    recorder.close()

    assert (len(told[0].calls), told[0].left_out) == (MOST_CALLS, 3)


def test_a_failed_attempt_says_why_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        with sending(monkeypatch, collector.url) as traces:
            traces.on_event(Event("polled", ATTEMPT, "e-1"))
            call = CallTimes("lake.head", time.time_ns(), time.time_ns(), "LakeError")
            times = StepTimes("input", time.time_ns(), time.time_ns(), (call,))
            traces.on_event(Event("step", ATTEMPT, "e-1", "input"))
            traces.on_event(Event("traced", ATTEMPT, "e-1", "input", times=times))
            end(traces, Outcome("FAILED", reason=f"no {SECRET} here\nmore"))
            # An attempt that is over, and one of an earlier worker.
            end(traces, Outcome("FAILED", reason="x"))
            end(traces, Outcome("FAILED", reason="x"), "e-2")

        [attempt] = collector.named("attempt clean")
        [step] = collector.below(attempt)
        [asked] = collector.below(step)
    assert (attempt.failed, attempt.message) == (True, "no *** here")
    assert (step.name, step.failed) == ("input", False)
    assert (asked.name, asked.failed, asked.message) == ("lake.head", True, "LakeError")


def test_an_attempt_in_flight_is_ended_with_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        with sending(monkeypatch, collector.url) as traces:
            traces.on_event(Event("polled", ATTEMPT, "e-1"))
            traces.on_event(Event("step", ATTEMPT, "e-1", "body"))

        [attempt] = collector.named("attempt clean")
        assert [(one.name, one.failed) for one in collector.below(attempt)] == [("body", True)]
    assert (attempt.attributes["perago.status"], attempt.attributes["perago.step"]) == ("STOPPED", "body")


def test_the_sampler_of_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        with sending(monkeypatch, collector.url, OTEL_TRACES_SAMPLER="always_off") as traces:
            traces.on_event(Event("polled", ATTEMPT, "e-1"))
            end(traces, Outcome("COMPLETED"))

        assert collector.requests == 0


@pytest.mark.parametrize("way", ["absent", "slow"])
def test_a_collector_that_takes_nothing_holds_up_nothing_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    caplog.set_level(logging.WARNING)
    with collecting(seconds=60) as collector:
        url = collector.url if way == "slow" else "http://127.0.0.1:9"
        with sending(monkeypatch, url, OTEL_BSP_SCHEDULE_DELAY="20") as traces:
            began = time.monotonic()
            for number in range(1000):
                traces.on_event(Event("polled", ATTEMPT, f"e-{number}"))
                end(traces, Outcome("COMPLETED"), f"e-{number}")
            emitted = time.monotonic() - began
            time.sleep(0.1)
            began = time.monotonic()
        closed = time.monotonic() - began

    assert emitted < 2
    assert closed < LAST_SEND_SECONDS + 2
    assert len([record for record in caplog.records if "spans are lost" in record.getMessage()]) == 1


def test_another_protocol_means_no_traces_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with sending(monkeypatch, "http://127.0.0.1:9", OTEL_EXPORTER_OTLP_PROTOCOL="grpc") as traces:
        assert type(traces) is NoTraces

    assert [one.getMessage() for one in caplog.records if one.name == "perago.traces"] == [
        "no traces are sent: OTLP over 'grpc' is not supported, set "
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"
    ]
