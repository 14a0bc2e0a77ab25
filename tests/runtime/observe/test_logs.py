"""Log lines: what they carry, what they hide, where they go."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from perago.protocol.attempt import Attempt
from perago.runtime.observe.logs import attempt_logs, logging_to
from perago.runtime.observe.sanitize import MASK
from perago.runtime.observe.trace_ids import attempt_span_id_of, trace_id_of
from perago.settings import Settings, load_settings
from tests.support.processes.commands import SERVERS

ATTEMPT = Attempt(
    "wf-1", "task-1", "clean__2", "clean", retry_count=3, seq=1, iteration=2, workflow_name="nightly"
)
log = logging.getLogger("perago.example")


def settings(tmp_path: Path, **environ: str) -> Settings:
    return load_settings({"PERAGO_ROOT": str(tmp_path), **environ})


def lines_as_json(text: str) -> list[Mapping[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_for_people_begins_with_the_date_and_ends_with_the_attempt_by_name_and_id(
    tmp_path: Path,
) -> None:
    shown = io.StringIO()

    with logging_to(settings(tmp_path), name="worker", stream=shown), attempt_logs(ATTEMPT, "exec-1"):
        log.info("did %s", "it")

    (line,) = shown.getvalue().splitlines()
    names = "workflow_name=nightly task_name=clean"
    attempt = f"[{names} workflow=wf-1 task=task-1 reference=clean__2 retry=3 execution=exec-1]"
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", line)
    assert line.split(maxsplit=2)[2] == f"INFO    example      did it  {attempt}"


def test_an_attempt_of_an_older_record_has_a_line_without_the_workflows_name(tmp_path: Path) -> None:
    shown = io.StringIO()
    old = replace(ATTEMPT, workflow_name="")

    with logging_to(settings(tmp_path), name="worker", stream=shown), attempt_logs(old, "exec-1"):
        log.info("did it")

    assert "[task_name=clean workflow=wf-1 task=task-1 " in shown.getvalue()


def test_a_line_for_machines_is_one_json_object_with_the_attempt(tmp_path: Path) -> None:
    shown = io.StringIO()

    with logging_to(settings(tmp_path, PERAGO_LOG_FORMAT="json"), name="worker", stream=shown):
        with attempt_logs(ATTEMPT, "exec-1"):
            log.warning("two\nlines")
        log.info("afterwards")

    inside, after = lines_as_json(shown.getvalue())
    assert inside["message"] == "two\nlines"
    assert inside["level"] == "warning"
    assert inside["logger"] == "perago.example"
    assert (inside["workflow"], inside["task"], inside["retry"]) == ("wf-1", "task-1", 3)
    assert (inside["workflow_name"], inside["task_name"]) == ("nightly", "clean")
    assert inside["execution"] == "exec-1"
    assert "workflow" not in after


def test_two_threads_log_two_attempts_without_mixing_them_up(tmp_path: Path) -> None:
    shown = io.StringIO()
    both_inside = threading.Barrier(2, timeout=10)

    def work(execution_id: str) -> None:
        with attempt_logs(ATTEMPT, execution_id):
            both_inside.wait()
            log.info("%s", execution_id)

    with logging_to(settings(tmp_path, PERAGO_LOG_FORMAT="json"), name="worker", stream=shown):
        threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = lines_as_json(shown.getvalue())
    assert sorted((line["message"], line["execution"]) for line in found) == [("a", "a"), ("b", "b")]


@pytest.mark.parametrize(("everywhere", "expected"), [(True, "exec-1"), (False, None)])
def test_a_thread_that_a_body_starts_carries_the_attempt_where_the_process_has_but_one(
    tmp_path: Path, everywhere: bool, expected: str | None
) -> None:
    shown = io.StringIO()

    with (
        logging_to(settings(tmp_path, PERAGO_LOG_FORMAT="json"), name="worker", stream=shown),
        attempt_logs(ATTEMPT, "exec-1", everywhere=everywhere),
    ):
        thread = threading.Thread(target=log.info, args=("from a thread",))
        thread.start()
        thread.join()

    (line,) = lines_as_json(shown.getvalue())
    assert line.get("execution") == expected


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_of_the_settings_is_ever_shown(tmp_path: Path, log_format: str) -> None:
    shown = io.StringIO()
    configured = settings(
        tmp_path, PERAGO_LOG_FORMAT=log_format, PERAGO_LOG_ROOT=str(tmp_path / "logs"), **SERVERS
    )

    with logging_to(configured, name="worker", stream=shown):
        log.info("keys: %s and %s", "conductor-secret", "lake%2Fsecret%2B1")
        try:
            raise OSError("cannot open https://user:in-the-url@conductor.example/api")
        except OSError:
            log.exception("it said lake/secret+1")

    for text in (shown.getvalue(), (tmp_path / "logs" / "worker.jsonl").read_text()):
        assert "cannot open https://user:" in text
        assert MASK in text
        for secret in ("conductor-secret", "lake/secret", "lake%2Fsecret", "in-the-url"):
            assert secret not in text


def test_the_copy_under_the_log_root_is_json_whatever_stderr_is(tmp_path: Path) -> None:
    shown = io.StringIO()
    configured = settings(tmp_path, PERAGO_LOG_ROOT=str(tmp_path / "logs"))

    with logging_to(configured, name="executor-1", stream=shown), attempt_logs(ATTEMPT, "exec-1"):
        log.info("kept")

    (line,) = lines_as_json((tmp_path / "logs" / "executor-1.jsonl").read_text())
    assert (line["message"], line["execution"]) == ("kept", "exec-1")
    assert not shown.getvalue().startswith("{")


def test_a_request_log_of_a_library_is_not_shown_and_its_warning_is(tmp_path: Path) -> None:
    shown = io.StringIO()

    with logging_to(settings(tmp_path), name="worker", stream=shown):
        logging.getLogger("httpx").info("GET http://…")
        logging.getLogger("httpx").warning("broken")
        logging.getLogger("authors.module").info("from a body")

    text = shown.getvalue()
    assert "GET" not in text
    assert "broken" in text
    assert "from a body" in text


def test_everything_is_as_it_was_afterwards(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("httpx").level)

    with logging_to(settings(tmp_path), name="worker", stream=io.StringIO()):
        pass

    assert (root.level, list(root.handlers), logging.getLogger("httpx").level) == before


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_of_an_attempt_carry_its_trace_and_span_while_traces_are_on(tmp_path: Path, form: str) -> None:
    on, off = io.StringIO(), io.StringIO()
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "PERAGO_LOG_FORMAT": form}

    with logging_to(settings(tmp_path, **collector), name="worker", stream=on):
        log.info("outside")
        with attempt_logs(ATTEMPT, "exec-1"):
            log.info("inside")
    with (
        logging_to(settings(tmp_path, PERAGO_LOG_FORMAT=form), name="worker", stream=off),
        attempt_logs(ATTEMPT, "exec-1"),
    ):
        log.info("inside")

    outside, inside = on.getvalue().splitlines()
    assert "trace_id" not in outside + off.getvalue()
    trace, span = f"{trace_id_of('wf-1'):032x}", f"{attempt_span_id_of('exec-1'):016x}"
    if form == "json":
        assert (json.loads(inside)["trace_id"], json.loads(inside)["span_id"]) == (trace, span)
    else:
        assert inside.endswith(f"execution=exec-1 trace_id={trace} span_id={span}]")
