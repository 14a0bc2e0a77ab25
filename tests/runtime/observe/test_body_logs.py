"""A record that a body logs becomes one line of its attempt, whatever the body does to `logging`."""

from __future__ import annotations

import io
import logging
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from perago.declare.discovery import load_tasks
from perago.protocol.attempt import Attempt
from perago.runtime.observe.logs import attempt_logs, logging_to
from perago.runtime.process.process_state import preserving_process_state
from perago.settings import load_settings

ATTEMPT = Attempt("wf-1", "task-1", "clean", "clean", retry_count=0, seq=1, iteration=0)

TASK = """
from pydantic import BaseModel
from perago import task


class Nothing(BaseModel):
    pass


@task(name="load", owner_email="data@example.com")
def load(params: Nothing) -> Nothing:
    return params
"""


def logged(
    tmp_path: Path, body: Callable[[logging.Logger], None], *, level: int = logging.INFO, times: int = 1
) -> tuple[str, list[str]]:
    """The worker's log, and the lines that a body has logged or printed."""
    worker, printed = io.StringIO(), io.StringIO()
    name = f"tasks.{uuid.uuid4().hex}"
    settings = load_settings({"PERAGO_ROOT": str(tmp_path)})
    with logging_to(settings, name="executor-1", stream=worker, level=level, bodies=printed.write):
        for _ in range(times):
            with attempt_logs(ATTEMPT, "e1", everywhere=True), preserving_process_state():
                sys.stderr = printed
                body(logging.getLogger(name))
    return worker.getvalue(), printed.getvalue().replace(name, "tasks").splitlines()


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_a_body_that_only_logs_is_seen_whatever_the_worker_logs_itself(tmp_path: Path, level: int) -> None:
    def body(log: logging.Logger) -> None:
        log.info("%d rows", 3)
        log.debug("not for people")

    worker, lines = logged(tmp_path, body, level=level)

    assert lines == ["INFO tasks: 3 rows"]
    assert "rows" not in worker


def test_a_logger_called_after_its_module_has_the_name_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "loading.py"
    file.write_text("import logging\nlog = logging.getLogger(__name__)\n\n\n" + TASK)
    (task,) = load_tasks([str(file)])
    module = sys.modules[task.fn.__module__]

    _, lines = logged(tmp_path, lambda _: module.log.warning("careful"))

    assert lines == ["WARNING loading: careful"]


def test_an_exception_that_is_logged_stays_whole(tmp_path: Path) -> None:
    def body(log: logging.Logger) -> None:
        try:
            raise ValueError("bad\nrow")
        except ValueError:
            log.exception("skipped")

    _, lines = logged(tmp_path, body)

    assert lines[:2] == ["ERROR tasks: skipped", "Traceback (most recent call last):"]
    assert lines[-2:] == ["ValueError: bad", "row"]


def own_handler(log: logging.Logger) -> None:
    log.addHandler(logging.StreamHandler())


def own_root_handler(_log: logging.Logger) -> None:
    logging.getLogger().addHandler(logging.StreamHandler())


def own_setup(_log: logging.Logger) -> None:
    logging.basicConfig(force=True, level=logging.INFO)


def own_setup_that_changes_nothing(_log: logging.Logger) -> None:
    logging.basicConfig(level=logging.INFO)


def own_dead_end(log: logging.Logger) -> None:
    log.addHandler(logging.StreamHandler())
    log.propagate = False


@pytest.mark.parametrize(
    "set_up", [own_handler, own_root_handler, own_setup, own_setup_that_changes_nothing, own_dead_end]
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_body_that_sets_up_logging_itself_gets_no_line_twice(
    tmp_path: Path, set_up: Callable[[logging.Logger], None], times: int
) -> None:
    def body(log: logging.Logger) -> None:
        set_up(log)
        log.warning("once")

    worker, lines = logged(tmp_path, body, times=times)

    assert len([line for line in lines if "once" in line]) == times
    assert "once" not in worker


def test_a_body_that_logs_into_a_file_is_seen_too(tmp_path: Path) -> None:
    def body(log: logging.Logger) -> None:
        log.addHandler(own := logging.FileHandler(tmp_path / "own.log"))
        log.warning("in both")
        log.removeHandler(own)
        own.close()

    _, lines = logged(tmp_path, body)

    assert lines == ["WARNING tasks: in both"]
    assert (tmp_path / "own.log").read_text() == "in both\n"


def test_records_of_perago_or_outside_an_attempt_go_to_the_workers_log(tmp_path: Path) -> None:
    worker, printed = io.StringIO(), io.StringIO()

    with logging_to(
        load_settings({"PERAGO_ROOT": str(tmp_path)}), name="e", stream=worker, bodies=printed.write
    ):
        logging.getLogger("tasks").info("at import")
        with attempt_logs(ATTEMPT, "e1", everywhere=True):
            logging.getLogger("perago.example").info("ours")
            logging.getLogger("urllib3.pool").warning("pool is full")
            logging.getLogger(f"[{os.getpid()}] conductor.client.x").info("imported")
            logging.getLogger(f"[{os.getpid()}] conductor.client.x").warning("away")

    assert printed.getvalue() == ""
    said = worker.getvalue().splitlines()
    assert [
        text
        for line, text in zip(said, ("at import", "ours", "full", "away"), strict=True)
        if text not in line
    ] == []
