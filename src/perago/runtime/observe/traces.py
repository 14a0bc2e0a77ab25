"""Traces: one per workflow, sent over OTLP, if the environment names a collector.

    span                            parent         sent by
    the workflow                    none           `perago run`, when the workflow has ended
    an execution of an attempt      the workflow   its worker, from poll to end
    a step (`protocol/steps`)       the attempt    its worker, with times from the executor
    a call to the lake or the       the step       the same
      orchestrator

The supervisor makes all spans, out of events, so that an attempt whose executor was killed has its span too: with the
step at which it died, and both in error.  Sending is up to a thread with a bounded queue.  It never delays an attempt;
spans that the collector does not take are lost, which is logged once.

Spans are made directly, not with a `Tracer`: their times are known only afterwards, and two of the ids are given
(`trace_ids`).  The sampler that the environment names decides by the trace id, so that all workers decide alike.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from perago.protocol.attempt import Attempt
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import ExecutionResult, PendingResult
from perago.runtime.observe.call_recorder import StepTimes
from perago.runtime.observe.events import Event
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.observe.trace_ids import attempt_span_id_of, root_span_id_of, trace_id_of
from perago.settings import Settings, shown_address

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import SpanContext

log = logging.getLogger("perago.traces")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
LAST_SEND_SECONDS = 1.0
"""How long the last spans may take at the end, so that an absent collector does not keep a process from ending."""
_SENDING_THREAD = "OtelBatchSpanRecordProcessor"
_SENDING_LOGGERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)
_GOOD = frozenset({"COMPLETED", "LOST_TO_TWIN"})

Attributes = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class WorkflowTimes:
    """A workflow that has ended.  Times are in seconds since 1970."""

    id: str
    name: str
    status: str
    began: float
    ended: float | None


class NoTraces:
    """Traces that are not sent.  Used if no collector is configured."""

    on = False

    def on_event(self, event: Event) -> None:
        """Make spans of an event of the worker."""

    def workflow_ended(self, workflow: WorkflowTimes) -> None:
        """Send the span of a workflow."""


@dataclass(slots=True)
class _OpenSpan:
    """The span of an attempt in flight."""

    attempt: Attempt
    context: SpanContext
    began: int
    sampled: bool
    step: str = ""
    step_began: int = 0


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """A span's content, apart from where it belongs."""

    name: str
    began: int
    ended: int
    error: str | None = None
    """What went wrong; None if nothing did."""
    is_call: bool = False


class Traces(NoTraces):
    """Makes spans of a worker's events and passes them to `send`.  Not thread-safe: the supervisor's loop calls it."""

    on = True

    def __init__(
        self,
        provider: TracerProvider,
        send: Callable[[ReadableSpan], None],
        *,
        mask: Callable[[str], str] = str,
    ) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.sampling import Decision
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        # Imported once: there are dozens of spans in an attempt.
        self._make, self._make_context = ReadableSpan, SpanContext
        self._good, self._failed = Status(StatusCode.UNSET), partial(Status, StatusCode.ERROR)
        self._call, self._internal = SpanKind.CLIENT, SpanKind.INTERNAL
        self._sampled, self._flags = Decision.RECORD_AND_SAMPLE, TraceFlags(TraceFlags.SAMPLED)
        self._provider = provider
        self._send = send
        self._mask = mask
        self._scope = InstrumentationScope("perago")
        self._open: dict[str, _OpenSpan] = {}
        # Not the global generator, which bodies may seed; it is not for secrets.
        self._random = Random()

    def on_event(self, event: Event) -> None:
        """Make spans of an event of the worker."""
        if event.attempt is None or not event.execution_id:
            return
        match event:
            case Event(kind="polled"):
                self._begin(event.execution_id, event.attempt)
            case Event(kind="step", step=step):
                if (span := self._open.get(event.execution_id)) is not None:
                    span.step, span.step_began = step, time.time_ns()
            case Event(kind="traced", times=StepTimes() as times):
                self._step_ended(event.execution_id, times)
            case Event(kind="ended", result=ExecutionResult() as result):
                self._end_by(event.execution_id, result.outcome, result.step)
            case Event(kind="died", step=step, text=how) if step:
                self._end(event.execution_id, "DIED", f"the executor died: {how}")
            case Event(kind="stopped"):
                self._end(event.execution_id, "STOPPED", "the attempt was over")
            case Event(kind="accepted" | "not-accepted", pending=PendingResult() as pending):
                self._end_by(event.execution_id, pending.outcome)

    def workflow_ended(self, workflow: WorkflowTimes) -> None:
        """Send the span of a workflow."""
        trace_id = trace_id_of(workflow.id)
        if not self._samples(trace_id, workflow.name):
            return
        ended = _nanoseconds(workflow.ended) if workflow.ended is not None else time.time_ns()
        error = None if workflow.status == "COMPLETED" else workflow.status
        times = SpanTimes(f"workflow {workflow.name}", _nanoseconds(workflow.began), ended, error)
        attributes = {
            "perago.workflow": workflow.id,
            "perago.workflow_name": workflow.name,
            "perago.status": workflow.status,
        }
        self._span(times, self._context(trace_id, root_span_id_of(workflow.id)), None, attributes)

    def close(self) -> None:
        """End the spans of the attempts that are still in flight."""
        for execution_id in list(self._open):
            self._end(execution_id, "STOPPED", "the worker stopped")

    def _begin(self, execution_id: str, attempt: Attempt) -> None:
        context = self._context(trace_id_of(attempt.workflow_instance_id), attempt_span_id_of(execution_id))
        sampled = self._samples(context.trace_id, attempt.task_name)
        self._open[execution_id] = _OpenSpan(attempt, context, time.time_ns(), sampled)

    def _step_ended(self, execution_id: str, times: StepTimes) -> None:
        span = self._open.get(execution_id)
        if span is None:
            return
        if span.step == times.step:
            span.step = ""
        if not span.sampled:
            return
        context = self._context(span.context.trace_id)
        more = {"perago.calls_left_out": times.left_out} if times.left_out else {}
        self._span(SpanTimes(times.step, times.began, times.ended), context, span.context, more)
        for call in times.calls:
            about = SpanTimes(call.name, call.began, call.ended, call.error or None, is_call=True)
            self._span(about, self._context(context.trace_id), context, {})

    def _end_by(self, execution_id: str, outcome: Outcome, step: str = "") -> None:
        if outcome.status in _GOOD:
            self._end(execution_id, outcome.status, None)
        else:
            reason = self._mask(outcome.reason or outcome.status).partition("\n")[0]
            self._end(execution_id, outcome.status, reason, step)

    def _end(self, execution_id: str, status: str, error: str | None, step: str = "") -> None:
        """Send an attempt's span, after that of a step which its executor could not end."""
        span = self._open.pop(execution_id, None)
        if span is None or not span.sampled:
            return
        attempt, context, now = span.attempt, span.context, time.time_ns()
        if span.step:
            unended = SpanTimes(span.step, span.step_began, now, error)
            self._span(unended, self._context(context.trace_id), context, {})
        root = self._context(context.trace_id, root_span_id_of(attempt.workflow_instance_id), remote=True)
        attributes = {**_about(execution_id, attempt), "perago.status": status}
        if ended_at := span.step or step:
            attributes["perago.step"] = ended_at
        about = SpanTimes(f"attempt {attempt.task_name}", span.began, now, error)
        self._span(about, context, root, attributes)

    def _span(
        self, times: SpanTimes, context: SpanContext, parent: SpanContext | None, attributes: Attributes
    ) -> None:
        status = self._good if times.error is None else self._failed(times.error)
        self._send(
            self._make(
                times.name,
                context,
                parent,
                self._provider.resource,
                attributes,
                kind=self._call if times.is_call else self._internal,
                status=status,
                start_time=times.began,
                end_time=max(times.began, times.ended),
                instrumentation_scope=self._scope,
            )
        )

    def _samples(self, trace_id: int, name: str) -> bool:
        sampled = self._provider.sampler.should_sample(None, trace_id, name)
        return sampled.decision is self._sampled

    def _context(self, trace_id: int, span_id: int | None = None, *, remote: bool = False) -> SpanContext:
        own = span_id if span_id is not None else self._random.getrandbits(64) or 1
        return self._make_context(trace_id, own, remote, self._flags)


@contextmanager
def open_traces(environ: Mapping[str, str], settings: Settings, *, worker_id: str) -> Iterator[NoTraces]:
    """Send the traces of a worker while the block runs, if the settings say so."""
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name)), "http/protobuf")
    if settings.traces and protocol != "http/protobuf":
        log.warning(
            "no traces are sent: OTLP over %r is not supported, set %s=http/protobuf", protocol, PROTOCOLS[0]
        )
    if not settings.traces or protocol != "http/protobuf":
        yield NoTraces()
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "perago"}
    resource = Resource.create({**name, "service.instance.id": worker_id})
    endpoint = next(environ[name].strip() for name in ENDPOINTS if environ.get(name, "").strip())
    exporter = _exporter(OTLPSpanExporter(), shown_address(endpoint))
    for one in _SENDING_LOGGERS:
        # Not removed again: the thread may still be waiting for the collector when the block has ended.
        logging.getLogger(one).addFilter(_not_while_sending)
    processor = BatchSpanProcessor(exporter)
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    traces = Traces(provider, processor.on_end, mask=Masker(secrets_of(settings)))
    try:
        yield traces
    finally:
        traces.close()
        _shut_down(processor, exporter)


def _shut_down(processor: Any, exporter: Any) -> None:
    """Send the remaining spans, but wait only a moment: an absent or slow collector must not keep the process."""
    sending = threading.Thread(target=processor.shutdown, name="perago-last-spans", daemon=True)
    sending.start()
    sending.join(LAST_SEND_SECONDS)
    if sending.is_alive():
        exporter.lost("no answer in time")
        with suppress(Exception):
            exporter.shutdown()


def _not_while_sending(record: logging.LogRecord) -> bool:
    """Return False for what the SDK logs about sending spans, each time again."""
    return record.threadName != _SENDING_THREAD


def _exporter(inner: SpanExporter, endpoint: str) -> Any:
    """Return the exporter, which logs once that the collector does not take spans."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Exporter(SpanExporter):
        def __init__(self) -> None:
            self._warned = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = inner.export(spans)
            if result is not SpanExportResult.SUCCESS:
                self.lost("it could not be reached, or refused them")
            return result

        def lost(self, why: str) -> None:
            if not self._warned:
                self._warned = True
                log.warning("spans are lost, the collector at %s does not take them: %s", endpoint, why)

        def shutdown(self) -> None:
            inner.shutdown()

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return inner.force_flush(timeout_millis)

    return Exporter()


def _about(execution_id: str, attempt: Attempt) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        "workflow": attempt.workflow_instance_id,
        "workflow_name": attempt.workflow_name or "",
        "task": attempt.task_id,
        "task_name": attempt.task_name,
        "reference": attempt.reference_task_name,
        "retry": attempt.retry_count,
        "execution": execution_id,
    }
    return {f"perago.{name}": value for name, value in fields.items()}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
