"""Perago's copy of the Conductor client: only its HTTP layer, and invisible to other code."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each of them starts processes.
pytestmark = pytest.mark.slow


def in_a_new_process(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "imports",
    [
        "import conductor.client; from perago.orchestrator.conductor import sdk",
        "from perago.orchestrator.conductor import sdk; import conductor.client",
    ],
    ids=["a body's first", "ours first"],
)
def test_a_body_that_imports_the_client_gets_the_whole_one_whoever_comes_first(imports: str) -> None:
    in_a_new_process(f"""{imports}
import conductor.client.http.rest, sys
from conductor.client.http.api_client import ApiClient
from conductor.client.http.models import Task
assert sys.modules["conductor.client"] is conductor.client
assert conductor.client.http.rest.ApiException is not sdk.ApiException
assert ApiClient is not sdk.ApiClient
assert ApiClient().deserialize_class({{"taskId": "one"}}, "Task").task_id == "one"
""")


def test_ours_brings_neither_models_nor_workers_nor_a_way_to_start_processes() -> None:
    in_a_new_process("""
import multiprocessing, sys
before = multiprocessing.get_start_method(allow_none=True)
from perago.orchestrator.conductor import sdk
assert multiprocessing.get_start_method(allow_none=True) == before
assert not [name for name in sys.modules if name.startswith("conductor.client")]
assert "rich" not in sys.modules
""")


def test_the_command_of_httpx_is_still_there_for_who_calls_it() -> None:
    in_a_new_process("""
from perago.orchestrator.conductor import sdk
import httpx, httpx._main
assert sdk.httpx is httpx and callable(httpx.main) and httpx._main.main is not httpx.main
""")
