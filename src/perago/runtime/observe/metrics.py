"""All worker metrics, defined in one place and based on OpenTelemetry.

    name                          kind        unit   labels
    perago.attempts               counter            task, outcome (ENDINGS)
    perago.publications           counter            task, fence (hard, soft)
    perago.publish.tries          counter            task
    perago.replaced.unsigned      counter            task
    perago.step.duration          histogram   s      task, step
    perago.bytes.moved            counter     By     task, direction (download, upload)
    perago.bytes.saved            counter     By     task
    perago.spark.bytes            counter     By     task, kind (SPARK_BYTES)
    perago.spark.rows             counter            task, kind (read, written)
    perago.spark.failed.tasks     counter            task
    perago.spark.peak.memory      histogram   By     task
    perago.lease.failures         counter            task
    perago.send.failures          counter            task
    perago.outbox.failures        counter            task
    perago.executor.restarts      counter
    perago.sweep.removed          counter            what
    perago.poll.age               gauge       s      task
    perago.in_flight              gauge
    perago.unhealthy              gauge              what (PARTS of health)

Callers use plain methods and know nothing about OpenTelemetry.  If no exporter is configured, `open_metrics` yields
`NoMetrics`, which does nothing and imports nothing.  Only the supervisor records metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from perago.errors import RuntimeConfigError
from perago.protocol.attempt_record import SparkFigures
from perago.protocol.outcome import Outcome
from perago.runtime.observe.health import PARTS, HealthState

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.sdk.metrics.export import MetricReader

Ending = Literal[
    "completed", "failed", "terminal", "refused", "stale", "lost_to_twin", "not_accepted", "died"
]
ENDINGS: tuple[Ending, ...] = (
    "completed",
    "failed",
    "terminal",
    "refused",
    "stale",
    "lost_to_twin",
    "not_accepted",
    "died",
)
OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTLP_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
LAST_SEND_MILLISECONDS = 2000
# These range from a warm read-only step to a long Spark body.
STEP_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)

SPARK_BYTES = {
    "read": "bytes_read",
    "written": "bytes_written",
    "shuffle_read": "shuffle_read",
    "shuffle_written": "shuffle_written",
    "spilled": "spilled",
}
"""The kinds of bytes in `perago.spark.bytes`, with the field of `SparkFigures` that each one counts."""
MEMORY_BUCKETS = tuple(2**28 * 2**power for power in range(10))
"""From 256 MiB to 128 GiB."""


def ending_of(outcome: Outcome, *, accepted: bool, refused: bool = False) -> Ending:
    """Return the outcome label for an attempt. `refused` says whether the publish fence ended it."""
    match outcome:
        case Outcome(status="LOST_TO_TWIN"):
            return "lost_to_twin"
        case Outcome(send=False):
            return "stale"
        case _ if not accepted:
            return "not_accepted"
        case Outcome(status="COMPLETED"):
            return "completed"
        case Outcome(status="FAILED_WITH_TERMINAL_ERROR"):
            return "terminal"
        case _:
            return "refused" if refused else "failed"


class NoMetrics:
    """Metrics that record nothing.  Used if no exporter is configured."""

    def attempt_ended(self, task: str, ending: Ending) -> None:
        """Count an attempt that ended."""

    def published(self, task: str, fence: str) -> None:
        """Count a publication with this fence level."""

    def tried_to_publish(self, task: str, count: int) -> None:
        """Count the calls that an attempt made to move its branch."""

    def replaced_unsigned(self, task: str) -> None:
        """Count a replaced commit that no task had signed."""

    def skipped(self, task: str) -> None:
        """Count an attempt whose body was skipped, because nothing had changed."""

    def steps_took(self, task: str, seconds: Mapping[str, float]) -> None:
        """Record the duration of each step of an attempt."""

    def bytes_moved(self, task: str, *, downloaded: int = 0, uploaded: int = 0, saved: int = 0) -> None:
        """Count the bytes that an attempt moved, and those it did not need to move."""

    def spark_worked(self, task: str, figures: SparkFigures) -> None:
        """Count the work that Spark did for an attempt."""

    def lease_failed(self, task: str) -> None:
        """Count a lease that could not be extended."""

    def send_failed(self, task: str) -> None:
        """Count a result that was sent without getting a response."""

    def outbox_failed(self, task: str) -> None:
        """Count a result that could not be written to the outbox."""

    def executor_restarted(self) -> None:
        """Count a new executor that replaces one that died or was recycled."""

    def swept(self, what: str, count: int) -> None:
        """Count removed leftovers of one kind."""

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return b""


class OtelMetrics(NoMetrics):
    """Records metrics with OpenTelemetry instruments."""

    def __init__(self, meter: Meter, health_state: HealthState, registry: Any | None = None) -> None:
        self._registry = registry
        self._attempts = meter.create_counter("perago.attempts", description="attempts by outcome")
        self._publications = meter.create_counter("perago.publications", description="publications by fence")
        self._tries = meter.create_counter("perago.publish.tries", description="calls to move a branch")
        self._skipped = meter.create_counter(
            "perago.skipped", description="attempts whose body was skipped, because nothing had changed"
        )
        self._replaced = meter.create_counter(
            "perago.replaced.unsigned", description="replaced commits that no task had signed"
        )
        self._steps = meter.create_histogram(
            "perago.step.duration",
            unit="s",
            description="time an attempt spent in a step",
            explicit_bucket_boundaries_advisory=STEP_BUCKETS,
        )
        self._moved = meter.create_counter("perago.bytes.moved", unit="By", description="bytes moved")
        self._saved = meter.create_counter(
            "perago.bytes.saved", unit="By", description="bytes that did not need to be moved"
        )
        self._spark_bytes = meter.create_counter(
            "perago.spark.bytes", unit="By", description="bytes that Spark read, wrote, shuffled and spilled"
        )
        self._spark_rows = meter.create_counter(
            "perago.spark.rows", description="rows that Spark read and wrote"
        )
        self._spark_failed = meter.create_counter(
            "perago.spark.failed.tasks", description="failed tasks of Spark's stages"
        )
        self._spark_memory = meter.create_histogram(
            "perago.spark.peak.memory",
            unit="By",
            description="largest memory of one executor's JVM in an attempt",
            explicit_bucket_boundaries_advisory=MEMORY_BUCKETS,
        )
        self._leases = meter.create_counter("perago.lease.failures", description="leases not extended")
        self._sends = meter.create_counter(
            "perago.send.failures", description="results sent and not answered"
        )
        self._outbox = meter.create_counter(
            "perago.outbox.failures", description="results that could not be written to the outbox"
        )
        self._restarts = meter.create_counter(
            "perago.executor.restarts", description="executors started again"
        )
        self._swept = meter.create_counter("perago.sweep.removed", description="leftovers removed")
        _watch(meter, health_state)

    def attempt_ended(self, task: str, ending: Ending) -> None:
        """Count an attempt that ended."""
        self._attempts.add(1, {"task": task, "outcome": ending})

    def published(self, task: str, fence: str) -> None:
        """Count a publication with this fence level."""
        self._publications.add(1, {"task": task, "fence": fence})

    def tried_to_publish(self, task: str, count: int) -> None:
        """Count the calls that an attempt made to move its branch."""
        self._tries.add(count, {"task": task})

    def replaced_unsigned(self, task: str) -> None:
        """Count a replaced commit that no task had signed."""
        self._replaced.add(1, {"task": task})

    def skipped(self, task: str) -> None:
        """Count an attempt whose body was skipped, because nothing had changed."""
        self._skipped.add(1, {"task": task})

    def steps_took(self, task: str, seconds: Mapping[str, float]) -> None:
        """Record the duration of each step of an attempt."""
        for step, took in seconds.items():
            self._steps.record(took, {"task": task, "step": step})

    def bytes_moved(self, task: str, *, downloaded: int = 0, uploaded: int = 0, saved: int = 0) -> None:
        """Count the bytes that an attempt moved, and those it did not need to move."""
        self._moved.add(downloaded, {"task": task, "direction": "download"})
        self._moved.add(uploaded, {"task": task, "direction": "upload"})
        self._saved.add(saved, {"task": task})

    def spark_worked(self, task: str, figures: SparkFigures) -> None:
        """Count the work that Spark did for an attempt."""
        for kind, field in SPARK_BYTES.items():
            self._spark_bytes.add(getattr(figures, field), {"task": task, "kind": kind})
        self._spark_rows.add(figures.rows_read, {"task": task, "kind": "read"})
        self._spark_rows.add(figures.rows_written, {"task": task, "kind": "written"})
        self._spark_failed.add(figures.failed_tasks, {"task": task})
        if figures.peak_memory:
            self._spark_memory.record(figures.peak_memory, {"task": task})

    def lease_failed(self, task: str) -> None:
        """Count a lease that could not be extended."""
        self._leases.add(1, {"task": task})

    def send_failed(self, task: str) -> None:
        """Count a result that was sent without getting a response."""
        self._sends.add(1, {"task": task})

    def outbox_failed(self, task: str) -> None:
        """Count a result that could not be written to the outbox."""
        self._outbox.add(1, {"task": task})

    def executor_restarted(self) -> None:
        """Count a new executor that replaces one that died or was recycled."""
        self._restarts.add(1)

    def swept(self, what: str, count: int) -> None:
        """Count removed leftovers of one kind."""
        self._swept.add(count, {"what": what})

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        if self._registry is None:
            return b""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


@contextmanager
def open_metrics(
    environ: Mapping[str, str], health_state: HealthState, *, worker_id: str, prometheus: bool
) -> Iterator[NoMetrics]:
    """Record metrics while the block runs.

    They are exported over OTLP if the environment names an endpoint, and served on `/metrics` if `prometheus` is True.
    """
    otlp = any(environ.get(name, "").strip() for name in OTLP_ENDPOINTS)
    off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or not (otlp or prometheus):
        yield NoMetrics()
        return
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    readers: list[MetricReader] = []
    registry = None
    if prometheus:
        registry, reader = _prometheus()
        readers.append(reader)
    if otlp:
        readers.append(_otlp(environ))
    name = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "perago"}
    resource = Resource.create({**name, "service.instance.id": worker_id})
    provider = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
    try:
        yield OtelMetrics(provider.get_meter("perago"), health_state, registry)
    finally:
        # Sends the remaining data. The timeout keeps an unreachable collector from delaying the exit.
        provider.shutdown(timeout_millis=LAST_SEND_MILLISECONDS)


def _watch(meter: Meter, health_state: HealthState) -> None:
    from opentelemetry.metrics import Observation

    def poll_age(_: CallbackOptions) -> Sequence[Observation]:
        return [Observation(age, {"task": task}) for task, age in health_state.poll_ages().items()]

    def in_flight(_: CallbackOptions) -> Sequence[Observation]:
        return [Observation(health_state.in_flight_count())]

    def unhealthy(_: CallbackOptions) -> Sequence[Observation]:
        problems = Counter(part for part, _ in health_state.problems())
        return [Observation(problems[part], {"what": part}) for part in PARTS]

    meter.create_observable_gauge(
        "perago.unhealthy", [unhealthy], description="what is wrong with the worker, by kind"
    )
    meter.create_observable_gauge(
        "perago.poll.age", [poll_age], unit="s", description="time since polling last showed life"
    )
    meter.create_observable_gauge(
        "perago.in_flight", [in_flight], description="attempts between poll and accepted result"
    )


def _prometheus() -> tuple[Any, MetricReader]:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    return registry, PrometheusMetricReader(registry=registry, scope_info_enabled=False)


def _otlp(environ: Mapping[str, str]) -> MetricReader:
    protocol = next((environ[name] for name in OTLP_PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise RuntimeConfigError(
            f"OTLP over {protocol!r} is not supported: set {OTLP_PROTOCOLS[1]}=http/protobuf"
        )
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter())
