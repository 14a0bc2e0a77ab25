"""Whole attempts on the real lakeFS whose input is damaged on its way, and found out while their bodies run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from perago import TaskTerminalError
from tests.conftest import LakefsServer
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.servers.lakefs import MIB, OBJECT, OpenLakeFS
from tests.support.worlds.lake_work import Work
from tests.support.worlds.world import Made, Params, World, make_task, published_ref

DATA = bytes(range(251)) * (9 * MIB // 251)


def tell(workspace: Path, _params: Params) -> Made:
    """Say what came, and take it away."""
    found = hashlib.md5((workspace / "large").read_bytes()).hexdigest()
    (workspace / "large").write_bytes(b"by the body")
    return Made(said=found)


def give_up(workspace: Path, _params: Params) -> Made:
    """Fail, as a body that cannot make sense of its input."""
    tell(workspace, _params)
    raise TaskTerminalError("this file makes no sense")


@pytest.mark.parametrize("body", [tell, give_up], ids=lambda body: body.__name__)
def test_the_attempt_fails_and_its_retry_has_the_right_bytes(
    lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path, body: object
) -> None:
    lakefs_work.commit("main", {"data/large": DATA})
    with fault_proxy(lakefs_server.url, Fault("other bytes", f"{OBJECT}data/large")) as proxy:
        world = World(open_lakefs(proxy.url, hashed_below=0), lakefs_work.repository, tmp_path)
        definition, before = make_task(body, retries=1), world.head().id  # type: ignore[arg-type]
        workflow = world.start(definition)

        settled = world.execute(definition, world.poll(definition))

        assert (settled.outcome.status, settled.step) == ("FAILED", "verify")
        assert "'data/large'" in (settled.outcome.reason or "")
        assert "damaged on its way, try again" in (settled.outcome.reason or "")
        assert (world.head().id, world.leftovers(), world.workdirs()) == (before, [], [])

        retried = make_task(tell, retries=1)
        settled = world.execute(retried, world.poll(retried))

        assert published_ref(settled) == world.head().id
        assert settled.outcome.output is not None
        assert settled.outcome.output["result"] == {"said": hashlib.md5(DATA).hexdigest()}
        assert world.workflow(workflow).status == "COMPLETED"
        world.orchestrator.close()
