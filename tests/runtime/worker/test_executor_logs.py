"""An executor's log records, on their way to the supervisor that writes them."""

from __future__ import annotations

import io
import logging
import os
import pickle
from pathlib import Path

from perago.protocol.attempt import Attempt
from perago.runtime.observe.logs import attempt_logs, logging_by, logging_to
from perago.runtime.observe.sanitize import Masker
from perago.runtime.runs.log import RunLog
from perago.runtime.worker.executor_protocol import Logged
from perago.runtime.worker.task_logs import ForwardingHandler, log_forwarded
from perago.settings import load_settings

ATTEMPT = Attempt("wf-1", "task-1", "clean", "clean", retry_count=0, seq=1, iteration=0)
log = logging.getLogger("perago.executor")


def said_by_an_executor() -> list[Logged]:
    """A record with all that a record may have, and one that is too fine, as the supervisor gets them."""
    said: list[Logged] = []
    with logging_by([ForwardingHandler(said.append, beside=lambda _: None)]), attempt_logs(ATTEMPT, "exec-1"):
        log.debug("too fine")
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("cleaning %s failed", "staging")
    answers: list[Logged] = pickle.loads(pickle.dumps(said))
    return answers


def test_a_record_crosses_as_words_with_its_attempt_and_its_traceback() -> None:
    (said,) = said_by_an_executor()

    assert (said.logger, said.level, said.text) == (
        "perago.executor",
        logging.ERROR,
        "cleaning staging failed",
    )
    assert said.attempt["execution"] == "exec-1"
    assert said.trace.endswith("ValueError: broken")


def test_the_supervisor_shows_it_and_keeps_it_like_its_own(tmp_path: Path) -> None:
    (said,) = said_by_an_executor()
    shown, kept = io.StringIO(), io.StringIO()
    settings = load_settings({"PERAGO_ROOT": str(tmp_path)})

    with logging_to(settings, name="run", stream=shown, level=logging.ERROR, kept=RunLog(kept, Masker([]))):
        log_forwarded(said)
        log_forwarded(Logged("perago.executor", logging.WARNING, "for the file"))

    line, *trace = shown.getvalue().splitlines()
    assert "ERROR   executor     cleaning staging failed  [task_name=clean workflow=wf-1 task=task-1" in line
    assert trace[-1] == "ValueError: broken"
    assert "ERROR executor: cleaning staging failed  [clean, execution exec-1]\n" in kept.getvalue()
    assert "    ValueError: broken\n" in kept.getvalue()
    assert "WARNING executor: for the file\n" in kept.getvalue()


def test_a_process_that_a_body_forked_leaves_the_supervisors_pipe_alone(tmp_path: Path) -> None:
    said: list[Logged] = []
    beside = tmp_path / "beside"

    with logging_by([ForwardingHandler(said.append, beside=lambda text: _append(beside, text))]):
        child = os.fork()
        if child == 0:
            log.error("from a fork")
            os._exit(len(said))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert beside.read_text() == "ERROR perago.executor: from a fork\n"


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
