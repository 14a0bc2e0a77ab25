"""The Conductor adapter with a server that is slow, silent, wrong or wants keys."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from perago.errors import OrchestratorRefused, OrchestratorUnavailable
from perago.orchestrator.conductor import wire
from perago.orchestrator.conductor.http import TOKEN_SECONDS, Address, ConductorApi
from perago.orchestrator.conductor.orchestrator import MAX_LOG_CHARS, ConductorOrchestrator, Timeouts
from perago.protocol.attempt import Attempt
from perago.protocol.outcome import Outcome, completed
from tests.support.servers.scripted_server import Answer, Request, scripted

ATTEMPT = Attempt("wf", "task-1", "ref", "clean", retry_count=0, seq=1, iteration=0)
TASK = {
    "workflowInstanceId": "wf",
    "taskId": "task-1",
    "referenceTaskName": "ref",
    "taskDefName": "clean",
    "taskType": "clean",
    "retryCount": 0,
    "seq": 1,
    "status": "IN_PROGRESS",
    "inputData": {"params": {}},
}
TROUBLE = (503, {"message": "starting"})


Open = Callable[..., ConductorOrchestrator]


@pytest.fixture
def orchestrator() -> Iterator[Open]:
    """Makes adapters that do not wait between their tries, and closes them."""
    with ExitStack() as stack:

        def make(url: str, **options: Any) -> ConductorOrchestrator:
            return stack.enter_context(closing(ConductorOrchestrator(url, sleep=lambda _: None, **options)))

        yield make


@pytest.mark.slow
def test_importing_the_adapter_does_not_import_the_client() -> None:
    code = "import sys, perago.orchestrator.conductor.orchestrator; sys.exit('conductor' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == 0


def test_a_read_is_tried_again_when_the_server_says_nothing(orchestrator: Open) -> None:
    answers = [TROUBLE, TROUBLE, (200, TASK)]

    with scripted(lambda _: answers.pop(0)) as server:
        snapshot = orchestrator(server.url).current(ATTEMPT)

    assert snapshot.status == "IN_PROGRESS"
    assert len(server.seen("GET", "/tasks/task-1")) == 3


def test_a_read_gives_up_after_a_few_tries(orchestrator: Open) -> None:
    with scripted(lambda _: TROUBLE) as server, pytest.raises(OrchestratorUnavailable, match="503 starting"):
        orchestrator(server.url).current(ATTEMPT)

    assert len(server.requests) == 3


def test_a_result_is_sent_once_for_the_outbox_to_send_again(orchestrator: Open) -> None:
    with scripted(lambda _: TROUBLE) as server, pytest.raises(OrchestratorUnavailable):
        orchestrator(server.url).complete(ATTEMPT, completed({}), worker_id="w")

    assert len(server.seen("POST", "/tasks")) == 1


def test_a_poll_is_not_tried_again(orchestrator: Open) -> None:
    with scripted(lambda _: TROUBLE) as server, pytest.raises(OrchestratorUnavailable):
        orchestrator(server.url).poll("clean", worker_id="w", count=1, wait_seconds=1)

    assert len(server.requests) == 1


def test_a_server_that_takes_the_call_and_never_answers_is_given_up_on(orchestrator: Open) -> None:
    release = threading.Event()

    def hang(_: Request) -> Answer:
        release.wait()
        return 200, "task-1"

    with scripted(hang) as server:
        adapter = orchestrator(server.url, timeouts=Timeouts(connect=1, read=0.1, completion=0.1))
        try:
            with pytest.raises(OrchestratorUnavailable, match="timeout"):
                adapter.complete(ATTEMPT, completed({}), worker_id="w")
            with pytest.raises(OrchestratorUnavailable, match="timeout"):
                adapter.log(ATTEMPT, ["a line"])
        finally:
            release.set()


def test_a_server_that_is_not_there_is_unavailable(orchestrator: Open) -> None:
    with scripted(lambda _: TROUBLE) as server:
        gone = server.url

    with pytest.raises(OrchestratorUnavailable):
        orchestrator(gone).current(ATTEMPT)


@pytest.mark.parametrize("page", ["<html>the web pages</html>", "", {"error": "x"}, [1]])
def test_an_answer_that_is_not_conductors_points_at_the_url(orchestrator: Open, page: object) -> None:
    with scripted(lambda _: (200, page)) as server:
        adapter = orchestrator(server.url)

        with pytest.raises(OrchestratorUnavailable, match="CONDUCTOR_SERVER_URL"):
            adapter.current(ATTEMPT)
        with pytest.raises(OrchestratorUnavailable, match="CONDUCTOR_SERVER_URL"):
            adapter.workflow("wf")


def test_a_batch_waits_for_one_task_and_takes_the_rest_as_it_is(orchestrator: Open) -> None:
    def answer(request: Request) -> Answer:
        waited = request.query["timeout"] != "0"
        return 200, [TASK] if waited else []

    with scripted(answer) as server:
        found = orchestrator(server.url).poll("clean", worker_id="w", count=4, wait_seconds=60)

    asked = [(request.query["count"], request.query["timeout"]) for request in server.requests]
    assert asked == [("4", "0"), ("1", "5000"), ("3", "0")]
    assert [assignment.attempt.task_id for assignment in found] == ["task-1"]


def test_a_task_that_was_waited_for_is_not_lost_when_the_rest_of_the_batch_cannot_be_asked_for(
    orchestrator: Open,
) -> None:
    answers: list[Answer] = [(200, []), (200, [TASK]), TROUBLE]

    with scripted(lambda _: answers.pop(0)) as server:
        found = orchestrator(server.url).poll("clean", worker_id="w", count=4, wait_seconds=1)

    assert len(found) == 1


def test_a_result_that_was_covered_by_another_update_is_to_be_sent_again(orchestrator: Open) -> None:
    def answer(request: Request) -> Answer:
        if request.path.startswith("/workflow/"):
            return 200, {"workflowId": "wf", "status": "RUNNING"}
        return 200, TASK

    with scripted(answer) as server, pytest.raises(OrchestratorUnavailable, match="send it again"):
        orchestrator(server.url).complete(ATTEMPT, completed({}), worker_id="w")


def test_a_result_for_an_open_task_of_a_workflow_that_is_over_is_not_accepted(orchestrator: Open) -> None:
    def answer(request: Request) -> Answer:
        if request.path.startswith("/workflow/"):
            return 200, {"workflowId": "wf", "status": "TERMINATED"}
        return 200, TASK

    with scripted(answer) as server:
        assert orchestrator(server.url).complete(ATTEMPT, completed({}), worker_id="w") is False


def test_a_result_that_the_server_keeps_elsewhere_is_accepted(orchestrator: Open) -> None:
    kept = {**TASK, "status": "COMPLETED", "outputData": {}, "externalOutputPayloadStoragePath": "x.json"}

    with scripted(lambda _: (200, kept)) as server:
        assert orchestrator(server.url).complete(ATTEMPT, completed({"a": 1}), worker_id="w") is True


def test_a_result_that_is_too_large_is_refused_before_it_is_sent(orchestrator: Open) -> None:
    with scripted(lambda _: (200, TASK)) as server:
        adapter = orchestrator(server.url, max_output_bytes=1000)

        with pytest.raises(OrchestratorRefused, match="put bulk into the workspace"):
            adapter.complete(ATTEMPT, completed({"rows": "x" * 1000}), worker_id="w")

    assert not server.requests


def test_an_outcome_that_must_keep_silent_is_never_sent(orchestrator: Open) -> None:
    with scripted(lambda _: (200, TASK)) as server, pytest.raises(ValueError, match="LOST_TO_TWIN"):
        orchestrator(server.url).complete(ATTEMPT, Outcome("LOST_TO_TWIN", send=False), worker_id="w")

    assert not server.requests


def test_a_long_line_of_a_log_is_cut_and_says_so_and_an_empty_one_is_not_sent(orchestrator: Open) -> None:
    with scripted(lambda _: (200, "")) as server:
        adapter = orchestrator(server.url)
        adapter.log(ATTEMPT, [])
        adapter.log(ATTEMPT, ["x" * (MAX_LOG_CHARS + 3), "yz"])

    cut, after = server.seen("POST", "/tasks/task-1/log")
    assert cut.body == "x" * MAX_LOG_CHARS + "\n… (3 characters more are not kept)"
    assert after.body == "yz"


def test_one_connection_serves_many_calls(orchestrator: Open) -> None:
    with scripted(lambda _: (200, TASK)) as server:
        adapter = orchestrator(server.url)
        for _ in range(10):
            adapter.current(ATTEMPT)
            adapter.extend_lease(ATTEMPT, worker_id="w")
        adapter.close()

    assert len(server.connections) == 1


def test_a_lease_extension_without_an_answer_may_cover_the_result_of_its_task_alone(
    orchestrator: Open,
) -> None:
    answers = [TROUBLE, (200, "")]
    other = replace(ATTEMPT, task_id="task-2")

    with scripted(lambda _: answers.pop(0) if answers else (200, "")) as server:
        adapter = orchestrator(server.url)
        adapter.extend_lease(ATTEMPT, worker_id="w")
        adapter.extend_lease(other, worker_id="w")
        # The first try may be at the server still, whatever became of the second.
        assert adapter.may_be_overwritten(ATTEMPT, left_behind=False)
        assert not adapter.may_be_overwritten(other, left_behind=False)
        assert adapter.may_be_overwritten(other, left_behind=True)


def test_a_call_that_the_worker_gave_up_may_have_been_handled(orchestrator: Open) -> None:
    go_on = threading.Event()

    def answer(_: Request) -> Answer:
        go_on.wait(30)
        return 200, ""

    with scripted(answer) as server:
        adapter = orchestrator(server.url, timeouts=Timeouts(read=0.05))
        with pytest.raises(OrchestratorUnavailable):
            adapter.extend_lease(ATTEMPT, worker_id="w")
        assert adapter.may_be_overwritten(ATTEMPT, left_behind=False)
        go_on.set()


def test_keys_are_traded_for_a_token_that_every_call_carries(orchestrator: Open) -> None:
    def answer(request: Request) -> Answer:
        return (200, {"token": "t1"}) if request.path == "/token" else (200, TASK)

    with scripted(answer) as server:
        adapter = orchestrator(server.url, auth_key="key", auth_secret="hush")
        adapter.current(ATTEMPT)
        adapter.log(ATTEMPT, ["a line"])

    login, read, log = server.requests
    assert json.loads(login.body) == {"keyId": "key", "keySecret": "hush"}
    assert (read.token, log.token) == ("t1", "t1")


def test_a_worker_that_started_before_its_server_gets_its_token_later(orchestrator: Open) -> None:
    answers: list[Answer] = [TROUBLE, (200, {"token": "t2"}), (200, TASK)]

    with scripted(lambda _: answers.pop(0)) as server:
        adapter = orchestrator(server.url, auth_key="key", auth_secret="hush")
        adapter.current(ATTEMPT)

    assert [request.path for request in server.requests] == ["/token", "/token", "/tasks/task-1"]
    assert server.requests[-1].token == "t2"


@pytest.mark.parametrize("error", ["EXPIRED_TOKEN", "INVALID_TOKEN"])
@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_the_server_no_longer_takes_is_renewed_and_the_call_sent_again(
    orchestrator: Open, status: int, error: str
) -> None:
    tokens = ["t1", "t2"]

    def answer(request: Request) -> Answer:
        if request.path == "/token":
            return 200, {"token": tokens.pop(0)}
        return (200, TASK) if request.token == "t2" else (status, {"error": error, "message": "no"})

    with scripted(answer) as server:
        adapter = orchestrator(server.url, auth_key="key", auth_secret="hush")
        # A result is sent again too: the server refused the first one.
        adapter.extend_lease(ATTEMPT, worker_id="w")

    assert [(request.path, request.token) for request in server.requests] == [
        ("/token", None),
        ("/tasks", "t1"),
        ("/token", None),
        ("/tasks", "t2"),
    ]


def test_a_call_that_is_forbidden_for_another_reason_is_not_sent_again(orchestrator: Open) -> None:
    def answer(request: Request) -> Answer:
        return (200, {"token": "t1"}) if request.path == "/token" else (403, {"message": "not yours"})

    with scripted(answer) as server:
        adapter = orchestrator(server.url, auth_key="key", auth_secret="hush")
        with pytest.raises(OrchestratorUnavailable, match="403 not yours; check CONDUCTOR_AUTH_KEY"):
            adapter.complete(ATTEMPT, completed({}), worker_id="w")

    assert [request.path for request in server.requests] == ["/token", "/tasks"]


def test_an_old_token_is_renewed_before_it_is_used() -> None:
    now = [0.0]
    tokens = ["t1", "t2"]

    def answer(request: Request) -> Answer:
        return (200, {"token": tokens.pop(0)}) if request.path == "/token" else (200, TASK)

    with scripted(answer) as server:
        address = Address(server.url, "key", "hush")
        api = ConductorApi(address, connect_timeout=5, read_timeout=5, clock=lambda: now[0])
        with closing(api):
            for now[0] in (0, TOKEN_SECONDS - 1, TOKEN_SECONDS, TOKEN_SECONDS + 1):
                api.call("read it", wire.Request("GET", "/tasks/task-1"))

    assert [request.token for request in server.seen("GET", "/tasks/task-1")] == ["t1", "t1", "t2", "t2"]


def test_keys_that_the_server_does_not_take_are_logged_without_the_secret(
    orchestrator: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted(lambda _: (401, {"message": "unknown key"})) as server:
        adapter = orchestrator(server.url, auth_key="key", auth_secret="hush")
        with pytest.raises(OrchestratorUnavailable, match="401 unknown key; check CONDUCTOR_AUTH_KEY"):
            adapter.complete(ATTEMPT, completed({}), worker_id="w")

    logged = [record.getMessage() for record in caplog.records if record.name.startswith("perago")]
    assert (
        logged
        == [
            "cannot log in: 401 unknown key; check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET; "
            "calls are sent without a token"
        ]
        * 2
    )


@pytest.mark.parametrize(
    "answer",
    [
        "<html>hello</html>",
        {"nothing": 1},
        [1],
        "",
        {"token": None},
        {"token": ""},
        {"token": "half\r\nhush"},
    ],
)
def test_a_login_that_is_answered_by_something_else_leaves_the_call_without_a_token(
    orchestrator: Open, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted(lambda request: (200, answer if request.path == "/token" else TASK)) as server:
        assert (
            orchestrator(server.url, auth_key="key", auth_secret="hush").current(ATTEMPT).task_id == "task-1"
        )

    assert server.requests[-1].token is None
    assert "the answer holds no token" in caplog.text
    assert "hush" not in caplog.text


def test_a_call_without_a_body_sends_an_empty_object_and_a_get_sends_none(orchestrator: Open) -> None:
    state = {"workflowId": "wf", "status": "FAILED"}
    with scripted(lambda _: (200, state)) as server:
        orchestrator(server.url).retry_workflow("wf")

    assert [(request.method, request.body) for request in server.requests] == [("GET", ""), ("POST", "{}")]


def test_a_server_without_logins_is_used_without_one(
    orchestrator: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given keys in the environment, which only the settings may read.
    monkeypatch.setenv("CONDUCTOR_AUTH_KEY", "key")
    monkeypatch.setenv("CONDUCTOR_AUTH_SECRET", "hush")

    with scripted(lambda _: (200, TASK)) as server:
        orchestrator(server.url).current(ATTEMPT)

    assert [(request.path, request.token) for request in server.requests] == [("/tasks/task-1", None)]


def test_a_proxys_404_to_the_login_does_not_make_the_adapter_forget_its_keys(orchestrator: Open) -> None:
    """A 404 to a login means a server without logins, unless something before Conductor said it."""
    back = threading.Event()

    def answer(request: Request) -> Answer:
        if not back.is_set():
            return 404, "<html>404 Not Found</html>"
        if request.path == "/token":
            return 200, {"token": "t1"}
        return (200, TASK) if request.token == "t1" else (401, "<html>who are you?</html>")

    with scripted(answer) as server:
        adapter = orchestrator(server.url, auth_key="key", auth_secret="hush")
        with pytest.raises(OrchestratorUnavailable):
            adapter.current(ATTEMPT)
        back.set()

        assert adapter.current(ATTEMPT).status == "IN_PROGRESS"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_definition_is_missing_only_if_conductor_itself_says_so(orchestrator: Open, status: int) -> None:
    with scripted(lambda _: (status, "<html>a proxy</html>")) as server:
        adapter = orchestrator(server.url)

        with pytest.raises(OrchestratorUnavailable):
            adapter.taskdef("clean")
        with pytest.raises(OrchestratorUnavailable):
            adapter.register_taskdefs([{"name": "clean"}])

    assert server.seen("POST", "/metadata/taskdefs") == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://conductor:8080/api", "http://conductor:8080/api"),
        ("HTTPS://me:hush@Conductor.example.com/api/?key=hush#x", "https://conductor.example.com/api"),
    ],
)
def test_the_address_is_the_url_without_secrets(url: str, address: str) -> None:
    with closing(ConductorOrchestrator(url)) as orchestrator:
        assert orchestrator.address == address
