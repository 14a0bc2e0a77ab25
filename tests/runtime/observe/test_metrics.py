"""The metrics: values, names and exporters."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from perago.errors import RuntimeConfigError
from perago.protocol.attempt_record import SparkFigures
from perago.protocol.outcome import Outcome, completed
from perago.runtime.observe.health import HealthState
from perago.runtime.observe.metrics import ENDINGS, Ending, NoMetrics, OtelMetrics, ending_of, open_metrics
from tests.support.servers.scripted_server import scripted

DOCS = Path(__file__).parents[3] / "docs" / "observability.md"


def count_everything(metrics: NoMetrics) -> None:
    for ending in ENDINGS:
        metrics.attempt_ended("clean", ending)
    metrics.published("clean", "hard")
    metrics.tried_to_publish("clean", 3)
    metrics.replaced_unsigned("clean")
    metrics.skipped("clean")
    metrics.steps_took("clean", {"download": 0.2, "body": 40.0})
    metrics.bytes_moved("clean", downloaded=10, uploaded=5, saved=1000)
    metrics.spark_worked(
        "clean", SparkFigures(rows_read=7, bytes_written=70, spilled=9, failed_tasks=2, peak_memory=2**30)
    )
    metrics.lease_failed("clean")
    metrics.send_failed("clean")
    metrics.outbox_failed("clean")
    metrics.executor_restarted()
    metrics.swept("workdir", 3)


def exposed() -> str:
    health_state = HealthState(["clean"], clock=lambda: 0.0)
    health_state.set_in_flight(2)
    health_state.set_problem("result", "it waits", "one")
    health_state.set_problem("result", "it waits too", "another")
    with open_metrics({}, health_state, worker_id="w", prometheus=True) as metrics:
        count_everything(metrics)
        return metrics.exposition().decode()


def test_everything_that_is_counted_is_exposed_for_prometheus() -> None:
    text = exposed()

    for line in (
        'perago_attempts_total{outcome="completed",task="clean"} 1.0',
        'perago_attempts_total{outcome="lost_to_twin",task="clean"} 1.0',
        'perago_attempts_total{outcome="not_accepted",task="clean"} 1.0',
        'perago_attempts_total{outcome="refused",task="clean"} 1.0',
        'perago_attempts_total{outcome="stale",task="clean"} 1.0',
        'perago_publications_total{fence="hard",task="clean"} 1.0',
        'perago_publish_tries_total{task="clean"} 3.0',
        'perago_replaced_unsigned_total{task="clean"} 1.0',
        'perago_skipped_total{task="clean"} 1.0',
        'perago_step_duration_seconds_bucket{le="0.3",step="download",task="clean"} 1.0',
        'perago_step_duration_seconds_sum{step="body",task="clean"} 40.0',
        'perago_bytes_moved_bytes_total{direction="download",task="clean"} 10.0',
        'perago_bytes_moved_bytes_total{direction="upload",task="clean"} 5.0',
        'perago_bytes_saved_bytes_total{task="clean"} 1000.0',
        'perago_spark_rows_total{kind="read",task="clean"} 7.0',
        'perago_spark_bytes_total{kind="written",task="clean"} 70.0',
        'perago_spark_bytes_total{kind="spilled",task="clean"} 9.0',
        'perago_spark_failed_tasks_total{task="clean"} 2.0',
        'perago_spark_peak_memory_bytes_bucket{le="1073741824",task="clean"} 1.0',
        'perago_lease_failures_total{task="clean"} 1.0',
        'perago_send_failures_total{task="clean"} 1.0',
        'perago_outbox_failures_total{task="clean"} 1.0',
        'perago_unhealthy{what="result"} 2.0',
        'perago_unhealthy{what="worker"} 0.0',
        "perago_executor_restarts_total 1.0",
        'perago_sweep_removed_total{what="workdir"} 3.0',
        'perago_poll_age_seconds{task="clean"} 0.0',
        "perago_in_flight 2.0",
    ):
        assert f"\n{line}\n" in text


def test_the_docs_name_every_metric_and_no_other() -> None:
    names = set(re.findall(r"^# TYPE (\w+)", exposed(), re.MULTILINE))
    documented = set(re.findall(r"^\| `(perago_\w+|target_info)`", DOCS.read_text(), re.MULTILINE))

    assert documented == names


def test_the_docs_name_every_ending() -> None:
    documented = DOCS.read_text()

    assert get_args(Ending) == ENDINGS
    assert [ending for ending in ENDINGS if f"`{ending}`" not in documented] == []


@pytest.mark.slow
def test_nothing_is_imported_and_nothing_counted_where_nothing_is_configured() -> None:
    code = (
        "import sys\n"
        "from perago.runtime.observe.health import HealthState\n"
        "from perago.runtime.observe.metrics import NoMetrics, open_metrics\n"
        "with open_metrics({}, HealthState([]), worker_id='w', prometheus=False) as metrics:\n"
        "    assert type(metrics) is NoMetrics\n"
        "sys.exit(any(name.startswith(('opentelemetry', 'prometheus')) for name in sys.modules))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == 0


def test_without_an_exporter_counting_does_nothing() -> None:
    metrics = NoMetrics()

    count_everything(metrics)

    assert metrics.exposition() == b""


def test_the_sdks_own_switch_turns_it_off() -> None:
    environ = {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}

    with open_metrics(environ, HealthState([]), worker_id="w", prometheus=True) as metrics:
        assert type(metrics) is NoMetrics


def test_metrics_are_sent_over_otlp_at_the_end_at_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted(lambda _: (200, "")) as collector:
        endpoint = collector.url.removesuffix("/api")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        with open_metrics(environ, HealthState(["clean"]), worker_id="w", prometheus=False) as metrics:
            assert isinstance(metrics, OtelMetrics)
            metrics.attempt_ended("clean", "completed")

    assert {request.path for request in collector.requests} == {"/v1/metrics"}


def test_a_protocol_that_is_not_there_is_one_clear_error() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}

    with (
        pytest.raises(RuntimeConfigError, match="http/protobuf"),
        open_metrics(environ, HealthState([]), worker_id="w", prometheus=False),
    ):
        pass


@pytest.mark.parametrize(
    ("outcome", "accepted", "refused", "expected"),
    [
        (completed({}), True, False, "completed"),
        (completed({}), False, False, "not_accepted"),
        (Outcome("FAILED", reason="x"), True, False, "failed"),
        (Outcome("FAILED", reason="x"), True, True, "refused"),
        (Outcome("FAILED", reason="x"), False, True, "not_accepted"),
        (Outcome("FAILED_WITH_TERMINAL_ERROR", reason="x"), True, False, "terminal"),
        (Outcome("FAILED", reason="x", send=False), False, False, "stale"),
        (Outcome("LOST_TO_TWIN", send=False), False, False, "lost_to_twin"),
    ],
)
def test_an_attempt_is_counted_by_how_it_ended(
    outcome: Outcome, accepted: bool, refused: bool, expected: Ending
) -> None:
    assert ending_of(outcome, accepted=accepted, refused=refused) == expected
