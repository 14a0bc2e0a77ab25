"""Each rule of the arrows can fail: a violation of it is planted, and found and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_arrows import broken_arrows

PLANTED = [
    ("perago/protocol/names.py", "import pydantic", "from outside: stdlib"),
    ("perago/protocol/names.py", "from perago.lake.base import Lake", "may import of perago: errors"),
    (
        "perago/protocol/suggestions.py",
        "from perago.settings import Settings",
        "may import of perago: errors",
    ),
    ("perago/declare/task.py", "import requests", "from outside: stdlib, pydantic"),
    ("perago/declare/task.py", "from ..runtime.attempt import transaction", "may import of perago"),
    (
        "perago/runtime/worker/poller.py",
        "from perago.lake.lakefs.lake import LakefsLake",
        "may import of perago",
    ),
    (
        "perago/runtime/worker/poller.py",
        "def late():\n    from perago.lake.lakefs import lake",
        "may import of perago",
    ),
    ("perago/runtime/worker/poller.py", "import perago.assembly", "may import of perago"),
    ("perago/runtime/worker/poller.py", "from perago.backend import open_lakefs", "may import of perago"),
    ("perago/backend.py", "from perago.cli import main", "may import of perago"),
    ("perago/runtime/worker/poller.py", "from perago.cli import main", "may import of perago"),
    (
        "perago/runtime/worker/poller.py",
        "import importlib\nimportlib.import_module('perago.assembly')",
        "may import of perago",
    ),
    ("perago/runtime/worker/poller.py", "import obstore", "belongs below lake/"),
    ("perago/lake/lakefs/client.py", "import lakefs_sdk", "lakefs_sdk is not used"),
    ("perago/orchestrator/conductor/http.py", "import httpx", "httpx is not used"),
    (
        "perago/orchestrator/conductor/http.py",
        "from conductor.client import x",
        "belongs below orchestrator/",
    ),
    (
        "perago/runtime/worker/slots.py",
        "from perago.runtime.attempt.transaction import x",
        "may import of perago",
    ),
    (
        "perago/runtime/attempt/transaction.py",
        "from perago.runtime.worker import poller",
        "may import of perago",
    ),
    (
        "perago/runtime/attempt/transaction.py",
        "from perago.runtime.worker.executor import x",
        "may import of perago",
    ),
    (
        "perago/runtime/attempt/place.py",
        "from perago.runtime.attempt.publisher import x",
        "to be kept apart",
    ),
    (
        "perago/runtime/attempt/publisher.py",
        "from perago.runtime.attempt.place import x",
        "to be kept apart",
    ),
    ("perago/spark/places.py", "from perago.runtime.attempt.staging import x", "to be kept apart"),
    ("perago/runtime/runs/run.py", "from perago.assembly import Embedded", "may import of perago"),
    ("perago/runtime/runs/run.py", "from perago.runtime.attempt import x", "may import of perago"),
    ("perago/runtime/registration.py", "from perago.lake.local import store", "may import of perago"),
    ("perago/spark/session.py", "from perago.runtime.worker import poller", "may import of perago"),
    ("perago/spark/session.py", "from perago.runtime.observe import logs", "may import of perago"),
    (
        "perago/spark/worker_engine.py",
        "from perago.runtime.worker.hosted import link",
        "may import of perago",
    ),
    (
        "perago/spark/worker_engine.py",
        "from perago.runtime.worker import executor_protocol",
        "may import of perago",
    ),
    (
        "perago/runtime/worker/hosted/engine.py",
        "from perago.runtime.worker import executor_protocol",
        "may import of perago",
    ),
    ("perago/runtime/worker/hosted/link.py", "from perago.spark import jobs", "may import of perago"),
    ("perago/runtime/worker/hosted/link.py", "import pyspark", "belongs below spark/"),
    (
        "perago/runtime/worker/hosted/link.py",
        "from perago.runtime.attempt import transaction",
        "may import of perago",
    ),
    (
        "perago/runtime/worker/supervisor.py",
        "from perago.runtime.worker.hosted.engine import Jobs",
        "may import of perago",
    ),
    (
        "perago/runtime/worker/supervisor.py",
        "from perago.runtime.worker.hosted import link",
        "may import of perago",
    ),
    ("perago/runtime/observe/logs.py", "from perago.runtime.worker import poller", "may import of perago"),
    ("perago/ui/data_source.py", "from perago.assembly import Embedded", "may import of perago"),
    ("perago/ui/data_source.py", "from perago.runtime.worker import poller", "may import of perago"),
    ("perago/runtime/runs/inspect.py", "import starlette", "belongs below ui/"),
    ("perago/runtime/runs/inspect.py", "from perago.ui import site", "may import of perago"),
    ("perago/orchestrator/local/queue.py", "import obstore", "belongs below lake/"),
    ("perago/orchestrator/local/queue.py", "from perago.lake.base import Lake", "may import of perago"),
    (
        "perago/orchestrator/local/queue.py",
        "from perago.orchestrator.conductor import wire",
        "may import of perago",
    ),
    (
        "perago/orchestrator/conductor/wire.py",
        "from perago.orchestrator.local import queue",
        "may import of perago",
    ),
    ("perago/lake/local/lake.py", "from perago.settings import Settings", "may import of perago"),
    ("perago/lake/local/lake.py", "from perago.lake.lakefs.lake import LakefsLake", "may import of perago"),
    ("perago/lake/lakefs/cache/cache.py", "from perago.lake.local import store", "may import of perago"),
    ("perago/lake/__init__.py", "from perago.lake.lakefs.lake import LakefsLake", "may import of perago"),
    ("perago/lake/lakefs/fence.py", "from conductor.client import x", "belongs below orchestrator/"),
    ("perago/settings.py", "import perago.declare", "may import of perago: errors"),
    ("perago/cli/start.py", "from perago.lake.lakefs.lake import LakefsLake", "may import of perago"),
    ("perago/cli/start.py", "def f():\n    import pyspark.sql", "belongs below spark/"),
    ("perago/workflow/builder.py", "from conductor.client import x", "belongs below orchestrator/"),
    ("perago/workflow/builder.py", "from perago.orchestrator.conductor import wire", "may import of perago"),
    ("perago/workflow/builder.py", "from perago.cli import main", "may import of perago"),
    ("perago/declare/task.py", "from perago.workflow.builder import step", "may import of perago"),
    ("perago/workflow/model/definition.py", "import pydantic", "from outside: stdlib"),
    (
        "perago/workflow/model/definition.py",
        "from perago.declare.task import TaskDefinition",
        "may import of perago: errors, protocol",
    ),
    ("perago/runtime/runs/run.py", "from perago.workflow.check import check", "may import of perago"),
    ("perago/ui/graph.py", "from perago.workflow.check import check", "may import of perago"),
    ("perago/runtime/worker/poller.py", "from perago.workflow import step", "may import of perago"),
    ("perago/attic.py", "import os", "no row in ARROWS"),
]


@pytest.mark.parametrize(
    ("file", "source", "rule"), PLANTED, ids=[f"{file}: {text}" for file, text, _ in PLANTED]
)
def test_a_planted_violation_is_found_and_named(file: str, source: str, rule: str, tmp_path: Path) -> None:
    plant(
        tmp_path,
        dict.fromkeys(
            [
                "perago/lake/base.py",
                "perago/lake/lakefs/lake.py",
                "perago/lake/local/store.py",
                "perago/orchestrator/local/queue.py",
                "perago/orchestrator/conductor/wire.py",
                "perago/workflow/builder.py",
                "perago/workflow/__init__.py",
                "perago/runtime/attempt/place.py",
                "perago/runtime/attempt/publisher.py",
                "perago/runtime/attempt/staging.py",
                "perago/runtime/attempt/transaction.py",
                "perago/runtime/observe/logs.py",
                "perago/runtime/worker/poller.py",
                "perago/runtime/worker/executor.py",
                "perago/runtime/worker/executor_protocol.py",
                "perago/runtime/worker/hosted/link.py",
                "perago/runtime/worker/hosted/engine.py",
            ],
            "",
        ),
    )
    plant(tmp_path, {"perago/assembly.py": "", "perago/cli/__init__.py": "", file: source})

    [found] = broken_arrows(tmp_path)

    assert found.startswith(file)
    assert rule in found


def test_allowed_imports_are_not_reported(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "perago/__init__.py": "from perago.declare.task import task",
            "perago/protocol/names.py": "import re\nfrom perago.errors import PeragoError\nfrom . import attempt",
            "perago/protocol/attempt.py": "",
            "perago/declare/task.py": "import pydantic\nfrom perago.protocol import names",
            "perago/lake/__init__.py": "from .base import Lake",
            "perago/lake/base.py": "from ..errors import LakeError",
            "perago/lake/lakefs/lake.py": "import obstore\nfrom perago.lake import base\n"
            "from perago.lake.lakefs.transfer import get",
            "perago/lake/lakefs/transfer/fetch.py": "",
            "perago/orchestrator/base.py": "",
            "perago/runtime/attempt/transaction.py": "from perago.orchestrator.base import Orchestrator",
            "perago/runtime/worker/poller.py": "from perago.lake import Lake",
            "perago/runtime/worker/executor.py": "from perago.runtime.attempt.transaction import Transaction",
            "perago/assembly.py": "from perago.lake.lakefs.lake import LakefsLake\nfrom perago.settings import Settings",
            "perago/settings.py": "from perago.errors import RuntimeConfigError",
            "perago/errors.py": "",
            "perago/cli/start.py": "import typer\nfrom perago.assembly import x\nfrom perago.runtime.worker import poller",
            "perago/testing/__init__.py": "from perago.assembly import x\nfrom perago.lake.lakefs.lake import LakefsLake",
        },
    )

    assert broken_arrows(tmp_path) == []


def plant(root: Path, files: dict[str, str]) -> None:
    """Write a small source tree."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
