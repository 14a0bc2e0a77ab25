"""What every test may ask for: the real servers, and the rule about skips.

A test that needs a real server takes it as a fixture and gets the marker `servers` by that alone.  Without the
environment of `dev/servers env` it is skipped.  With `CI=true` any skip, for whatever reason, is a failure.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.request
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

LAKEFS_VERSION = "1.84.0"
CONDUCTOR_VERSION = "3.32.3"
SERVER_FIXTURES = frozenset(
    {"lakefs_server", "conductor_server", "lakefs_repository", "lakefs_without_actions"}
)


@dataclass(frozen=True, slots=True)
class LakefsServer:
    """A running lakeFS; `url` is the root, under which `/api/v1` and the S3 gateway answer."""

    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    state_folder: Path | None = None

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One API call past our own code: `path` starts below `/api/v1`."""
        pair = f"{self.access_key_id}:{self.secret_access_key}".encode()
        return _call(method, f"{self.url}/api/v1{path}", body, "Basic " + base64.b64encode(pair).decode())


@dataclass(frozen=True, slots=True)
class ConductorServer:
    """A running Conductor; `url` ends in `/api`, as the client wants it."""

    url: str
    state_folder: Path | None = None

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One API call past our own code: `path` starts below `/api`."""
        return _call(method, self.url + path, body, None)


@pytest.fixture(scope="session")
def lakefs_server() -> LakefsServer:
    """Real lakeFS of the version that `/config/version` itself reports."""
    server = LakefsServer(
        url=_needed("LAKECTL_SERVER_ENDPOINT_URL").rstrip("/").removesuffix("/api/v1"),
        access_key_id=_needed("LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
        secret_access_key=_needed("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
        state_folder=_state_folder(),
    )
    assert server.call("GET", "/config/version")["version"] == LAKEFS_VERSION
    return server


@pytest.fixture(scope="session")
def conductor_server() -> ConductorServer:
    """Real Conductor of the version that its `/actuator/info` (outside `/api`) reports from its own build."""
    url = _needed("CONDUCTOR_SERVER_URL").rstrip("/")
    info = _call("GET", url.removesuffix("/api") + "/actuator/info", None, None)
    assert info["build"]["version"] == CONDUCTOR_VERSION
    return ConductorServer(url=url, state_folder=_state_folder())


@pytest.fixture(scope="session")
def lakefs_without_actions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakefsServer]:
    """A real lakeFS of this test run's own, whose operator has switched actions off."""
    from tests.own_lakefs import running

    with running(tmp_path_factory.mktemp("lakefs"), actions={"enabled": False}) as (url, key, secret):
        yield LakefsServer(url, key, secret)


@pytest.fixture
def lakefs_repository(lakefs_server: LakefsServer) -> Iterator[str]:
    """The name of a fresh repository with an empty branch `main`; gone after the test."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    wanted = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
    lakefs_server.call("POST", "/repositories", wanted)
    yield name
    lakefs_server.call("DELETE", f"/repositories/{name}?force=true")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever takes a server fixture, directly or through another fixture, is marked `servers`."""
    for item in items:
        if SERVER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("servers")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skipped test is a failed one; an expected failure is not a skip."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _fail_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """With CI=true a module that skips itself while it is imported is an error."""
    report = yield
    if report.skipped:
        _fail_in_ci(report)
    return report


def _fail_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure with CI=true: {reason}"


def _needed(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        pytest.skip(f'{name} is not set: run `dev/servers up` and `eval "$(dev/servers env)"`')
    return value


def _state_folder() -> Path | None:
    folder = os.environ.get("PERAGO_DEV_SERVERS")
    return Path(folder) if folder else None


def _call(method: str, url: str, body: object, authorization: str | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    request.add_header("Content-Type", "application/json")
    if authorization:
        request.add_header("Authorization", authorization)
    # No proxy: the servers are on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as response:
        text = response.read().decode()
    try:
        return json.loads(text) if text else None
    except ValueError:
        # Conductor answers some calls with a bare id.
        return text
