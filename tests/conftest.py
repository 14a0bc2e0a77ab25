"""Fixtures for every test: the real servers; and the rule about skips.

A test that needs a real server takes it as a fixture and gets the marker `servers` by that alone.  Without the
environment of `dev/servers env` it is skipped.  With `CI=true` any skip, for whatever reason, is a failure.

Any two tests may run at once, on one lakeFS and one Conductor: names of repositories, tasks and workflows have a random
part.  What runs when is in `tests/support/processes/running_order.py`.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import shlex
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from realservers.state import memory_folder
from tests.support.processes.running_order import group_of, turn_of

LAKEFS_VERSION = "1.84.0"
CONDUCTOR_VERSION = "3.32.3"
SERVER_FIXTURES = frozenset(
    {
        "lakefs_server",
        "conductor_server",
        "lakefs_repository",
        "lakefs_without_actions",
        "own_servers",
        "production_servers",
    }
)
# Modules whose tests run a second time on the lakeFS of the production set.
PRODUCTION_TOO = frozenset(
    {
        "tests.scenarios.test_lakefs_fence",
        "tests.scenarios.test_lakefs_cuts",
        "tests.scenarios.test_lakefs_in_flight",
        "tests.scenarios.test_lakefs_races",
    }
)
# Of these and of the contract suite, what takes long and asks nothing of database or store stays on one of the two.
ON_ONE = frozenset(
    {
        "test_a_proxys_404_drops_nothing",
        "test_a_proxys_200_drops_nothing",
        "test_a_proxys_200_makes_no_branch",
        "test_hundreds_of_objects_are_listed_each_once",
        "test_more_than_a_page_is_told_whole",
    }
)
DEV_SERVERS = Path(__file__).parents[1] / "dev" / "servers"
PRODUCTION_UP = [DEV_SERVERS, "--set", "production", "up", "--production"]
STARTING = pytest.StashKey[subprocess.Popen[bytes]]()

# Databases and workdirs wait for the disk at every change; what tests write is not to outlive them.
if (memory := memory_folder()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


# Hypothesis would fail a property that a busy machine runs slowly.
settings.register_profile("perago", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("perago")


# A shell starts what it runs in the background with Ctrl-C ignored, and every process from here on would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True, slots=True)
class LakefsServer:
    """A running lakeFS; `url` is the root, under which `/api/v1` and the S3 gateway answer."""

    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    state_folder: Path | None = None
    namespace: str = "local://"
    """What the storage of a new repository begins with."""

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make an API call without our own code; `path` starts below `/api/v1`."""
        pair = f"{self.access_key_id}:{self.secret_access_key}".encode()
        return _call(method, f"{self.url}/api/v1{path}", body, "Basic " + base64.b64encode(pair).decode())


@dataclass(frozen=True, slots=True)
class ConductorServer:
    """A running Conductor; `url` ends in `/api`, as the client wants it."""

    url: str
    state_folder: Path | None = None

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make an API call without our own code; `path` starts below `/api`."""
        return _call(method, self.url + path, body, None)


@dataclass(frozen=True, slots=True)
class OwnServers:
    """A set of servers that one test after the other has to itself, and may stop, pause and restart."""

    name: str
    lakefs: LakefsServer
    conductor: ConductorServer

    def restart_conductor(self) -> None:
        subprocess.run([DEV_SERVERS, "--set", self.name, "restart", "conductor"], check=True)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The S3 store of a production lakeFS, and the keys with which lakeFS itself goes there."""

    url: str
    bucket: str
    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProductionServers:
    """lakeFS on PostgreSQL and S3, Conductor on PostgreSQL; shared by all tests."""

    lakefs: LakefsServer
    conductor: ConductorServer
    store: ObjectStore


@pytest.fixture(scope="session")
def lakefs_server(request: pytest.FixtureRequest) -> LakefsServer:
    """Real lakeFS of the version that `/config/version` itself reports."""
    if getattr(request, "param", "trial") == "production":
        production: ProductionServers = request.getfixturevalue("production_servers")
        return production.lakefs
    return _lakefs_of(os.environ)


@pytest.fixture(scope="session")
def conductor_server() -> ConductorServer:
    """Real Conductor of the version that its `/actuator/info` (outside `/api`) reports from its own build."""
    return _conductor_of(os.environ)


@pytest.fixture(scope="module")
def own_servers(lakefs_server: LakefsServer, conductor_server: ConductorServer) -> Iterator[OwnServers]:
    """Servers beside those that the other tests share; skipped where those are not there."""
    name = "own"
    servers = [DEV_SERVERS, "--set", name]
    subprocess.run([*servers, "up"], check=True, stdout=subprocess.DEVNULL)
    try:
        lines = subprocess.run([*servers, "env"], check=True, stdout=subprocess.PIPE, text=True).stdout
        environ = dict(word.split("=", 1) for word in shlex.split(lines) if "=" in word)
        yield OwnServers(name, _lakefs_of(environ), _conductor_of(environ))
    finally:
        subprocess.run([*servers, "down"], check=True)


@pytest.fixture(scope="session")
def production_servers() -> ProductionServers:
    """A production set beside the servers of the environment, started by the first test that wants it.

    Skipped where those are not up.  `dev/with-servers`, or the developer who started them, stops this set as well.
    """
    _needed(os.environ, "PERAGO_DEV_SERVERS")
    environ: Mapping[str, str] = os.environ
    if not environ.get("PERAGO_DEV_PRODUCTION"):
        subprocess.run(PRODUCTION_UP, check=True, stdout=subprocess.DEVNULL)
        servers = [DEV_SERVERS, "--set", "production"]
        lines = subprocess.run([*servers, "env"], check=True, stdout=subprocess.PIPE, text=True).stdout
        environ = dict(word.split("=", 1) for word in shlex.split(lines) if "=" in word)
    store = ObjectStore(
        url=_needed(environ, "PERAGO_DEV_STORE_URL"),
        bucket=_needed(environ, "PERAGO_DEV_STORE_BUCKET"),
        access_key_id=_needed(environ, "PERAGO_DEV_STORE_ACCESS_KEY_ID"),
        secret_access_key=_needed(environ, "PERAGO_DEV_STORE_SECRET_ACCESS_KEY"),
    )
    return ProductionServers(_lakefs_of(environ), _conductor_of(environ), store)


@pytest.fixture(scope="session")
def lakefs_without_actions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakefsServer]:
    """A real lakeFS of this test run's own, whose operator has switched actions off."""
    from tests.support.servers.own_lakefs import running

    with running(tmp_path_factory.mktemp("lakefs"), actions={"enabled": False}) as (url, key, secret):
        yield LakefsServer(url, key, secret)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a file system that shows by times which files were written; the others of the tests are in memory."""
    from perago.runtime.root.file_times import mapped_writes_show

    for place in (tempfile.gettempdir(), "/var/tmp", str(Path(__file__).parents[1])):
        if mapped_writes_show(Path(place)):
            with tempfile.TemporaryDirectory(dir=place) as folder:
                yield Path(folder)
            return
    pytest.skip("no disk shows by times which files were written")


@pytest.fixture
def lakefs_repository(lakefs_server: LakefsServer) -> Iterator[str]:
    """The name of a fresh repository with an empty branch `main`; gone after the test."""
    with fresh_repository(lakefs_server) as name:
        yield name


@contextmanager
def fresh_repository(server: LakefsServer) -> Iterator[str]:
    """Create a repository with a unique name, and delete it afterwards."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    wanted = {"name": name, "storage_namespace": f"{server.namespace}{name}", "default_branch": "main"}
    server.call("POST", "/repositories", wanted)
    yield name
    for _ in range(3):
        try:
            server.call("DELETE", f"/repositories/{name}?force=true")
            return
        except urllib.error.HTTPError as error:
            # lakeFS also answers so if a branch is dropped meanwhile; the repository may still exist.
            if error.code != 404:
                raise


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Modules that run on both sets take `lakefs_server` once as the trial server and once as the production one."""
    if "lakefs_server" in metafunc.fixturenames and metafunc.module.__name__ in PRODUCTION_TOO:
        servers = ["trial"] if metafunc.function.__name__ in ON_ONE else ["trial", "production"]
        metafunc.parametrize("lakefs_server", servers, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark every test that takes a server fixture, directly or through another one, as `servers`."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if SERVER_FIXTURES.intersection(fixtures):
            item.add_marker("servers")
        for name in {"sessions", "own_servers"}.intersection(fixtures):
            if group_of(item.nodeid) != name:
                raise pytest.UsageError(
                    f"{item.nodeid} takes {name}: add its path to GROUPS in tests/support/processes/running_order.py"
                )
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Set aside what was collected; start the production set beside the first tests, so that none waits for all of it."""
    # Thousands of tests stay as long as the process: looking through them for garbage, or copying them for a fork that
    # does, takes a good part of the time of tests that make much of either.
    gc.collect()
    gc.freeze()
    there = os.environ.get("PERAGO_DEV_SERVERS") and not os.environ.get("PERAGO_DEV_PRODUCTION")
    first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if there and first and not session.config.option.collectonly and any(map(_on_production, session.items)):
        # The fixture runs the same command, which waits for this one, and says what is wrong if it failed.
        session.config.stash[STARTING] = subprocess.Popen(
            PRODUCTION_UP, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that ends early does not leave a set behind that comes up after everything was stopped."""
    starting = session.config.stash.get(STARTING, None)
    if starting is not None:
        starting.wait()


def _on_production(item: pytest.Item) -> bool:
    """Return whether a test takes the production set, by name or through a parameter."""
    return (
        "production_servers" in getattr(item, "fixturenames", ())
        or "production" in item.nodeid.partition("[")[2]
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests side by side, groups whole, few heavy ones at once."""
    if config.getoption("dist") != "loadscope":
        return None
    from tests.support.processes.xdist_scheduler import Groups

    return Groups(config, log)


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


def _lakefs_of(environ: Mapping[str, str]) -> LakefsServer:
    server = LakefsServer(
        url=_needed(environ, "LAKECTL_SERVER_ENDPOINT_URL").rstrip("/").removesuffix("/api/v1"),
        access_key_id=_needed(environ, "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
        secret_access_key=_needed(environ, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
        state_folder=_state_folder(environ),
        namespace=f"s3://{bucket}/" if (bucket := environ.get("PERAGO_DEV_STORE_BUCKET")) else "local://",
    )
    assert server.call("GET", "/config/version")["version"] == LAKEFS_VERSION
    return server


def _conductor_of(environ: Mapping[str, str]) -> ConductorServer:
    url = _needed(environ, "CONDUCTOR_SERVER_URL").rstrip("/")
    info = _call("GET", url.removesuffix("/api") + "/actuator/info", None, None)
    assert info["build"]["version"] == CONDUCTOR_VERSION
    return ConductorServer(url=url, state_folder=_state_folder(environ))


def _needed(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        pytest.skip(f'{name} is not set: run `dev/servers up` and `eval "$(dev/servers env)"`')
    return value


def _state_folder(environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("PERAGO_DEV_SERVERS")
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
