"""`dev/servers` and production sets: what can be checked without servers, and a real database and store that are killed."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from realservers import __main__ as commands
from realservers import database
from realservers import state as states
from realservers.fleet import BACKING, process, reported_version
from realservers.state import State
from realservers.tools import DevError, cache_folder
from tests.conftest import ProductionServers

TRIAL = State(lakefs_port=1, conductor_port=1, access_key_id="key", secret_access_key="secret")


def _own_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State and locks below a folder; what was built before is found where it is."""
    (folder / "cache").mkdir()
    for name in ("lakefs", "conductor", "versitygw", "pixeltable"):
        for made in cache_folder().glob(f"{name}*"):
            (folder / "cache" / made.name).symlink_to(made)
    monkeypatch.setenv("PERAGO_DEV_CACHE", str(folder / "cache"))
    monkeypatch.setenv("PERAGO_DEV_SET", "killed")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))


@pytest.fixture
def own_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that no other test knows of."""
    _own_set(tmp_path, monkeypatch)


def noted(state: State) -> State:
    """A set that was up once."""
    states.state_folder().mkdir(mode=0o700)
    (states.state_folder() / "servers.json").write_text(json.dumps(asdict(state)))
    return state


@pytest.mark.usefixtures("own_set")
def test_a_trial_set_does_not_become_a_production_set_by_the_way() -> None:
    noted(TRIAL)

    with pytest.raises(DevError, match="up without --production: run `dev/servers down` first"):
        commands.up(production=True)


@pytest.mark.usefixtures("own_set")
def test_the_status_of_a_production_set_names_its_four_servers(capsys: pytest.CaptureFixture[str]) -> None:
    states.create(production=True)

    assert commands.status() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["postgres", "store", "lakefs", "conductor"]


@pytest.mark.usefixtures("own_set")
def test_a_state_that_an_earlier_version_wrote_is_a_trial_set() -> None:
    noted(TRIAL)
    file = states.state_folder() / "servers.json"
    old = {name: value for name, value in json.loads(file.read_text()).items() if value not in (False, 0, "")}
    file.write_text(json.dumps(old))

    found = states.load()

    assert found is not None
    assert not found.production


@pytest.mark.usefixtures("own_set")
@pytest.mark.parametrize("name", BACKING)
def test_a_server_of_a_production_set_is_not_restarted_in_another_set(name: str) -> None:
    noted(TRIAL)

    with pytest.raises(DevError, match=f"this set has no {name}"):
        commands.restart(name)


@pytest.mark.usefixtures("own_set")
@pytest.mark.parametrize("name", BACKING)
def test_a_server_that_holds_others_state_is_not_reset_alone(name: str) -> None:
    states.create(production=True)

    with pytest.raises(DevError, match="run `dev/servers down`, then `up --production`"):
        commands.restart(name, fresh=True)


def test_postgres_keeps_root_s_state_folder_closed_and_is_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    before = database._as_whom()
    assert before[1:4] == ["--reuid=65534", "--regid=65534", "--clear-groups"]

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert database._as_whom() == []


@pytest.fixture(scope="class")
def state(production_servers: ProductionServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    # The shared set is up, so both are built.
    with pytest.MonkeyPatch.context() as monkeypatch:
        _own_set(tmp_path_factory.mktemp("backing"), monkeypatch)
        state = states.create(production=True)
        commands._start_all(list(BACKING), state)
        folder, pids = states.state_folder(), [process(name).pid() for name in BACKING]
        yield state
        pids += [process(name).pid() for name in BACKING]
        commands.down()
    assert not folder.exists(), "down leaves no state"
    assert [pid for pid in pids if Path(f"/proc/{pid}/cwd").exists()] == [], "and no process"


@pytest.mark.slow
class TestBacking:
    """A real PostgreSQL and a real versitygw, without the servers that use them; the tests of this class share them."""

    def test_killed_they_come_up_again_with_what_they_knew(self, state: State) -> None:
        database.ensure(state, "kept")
        (states.state_folder() / "store" / "buckets" / "another").mkdir()
        for name in BACKING:
            pid = process(name).pid()
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

        commands._start_all(list(BACKING), state)

        assert (
            database._sql(state, "postgres", "select datname from pg_database where datname = 'kept'")
            == "kept"
        )
        assert [reported_version(name, state) for name in BACKING] == ["16", "1.8.0"]

    def test_postgres_and_store_refuse_access_without_the_password(self, state: State) -> None:
        stranger = State(**{**asdict(state), "backing_secret": "guessed"})

        assert database.version(stranger, 10) is None

    def test_a_forgotten_database_is_gone(self, state: State) -> None:
        database.ensure(state, "lakefs")
        database.drop(state, "lakefs")

        assert database._sql(state, "postgres", "select 1 from pg_database where datname = 'lakefs'") == ""

    def test_no_secret_is_on_a_command_line(self, state: State) -> None:
        for name in BACKING:
            line = Path(f"/proc/{process(name).pid()}/cmdline").read_text()
            assert state.backing_secret not in line


def test_lakefs_of_the_production_set_is_on_postgresql_and_s3(production_servers: ProductionServers) -> None:
    said = production_servers.lakefs.call("GET", "/config")["storage_config"]

    assert said["blockstore_type"] == "s3"
    assert said["pre_sign_support"]
    assert said["pre_sign_multipart_upload"]
    assert said["default_namespace_prefix"] == f"s3://{production_servers.store.bucket}"


def test_the_store_refuses_who_has_no_keys(production_servers: ProductionServers) -> None:
    url = f"{production_servers.store.url}/{production_servers.store.bucket}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(url, timeout=10)

    assert refused.value.code == 403
    refused.value.close()


def test_conductor_of_the_production_set_keeps_its_state_in_postgresql(
    production_servers: ProductionServers,
) -> None:
    folder = production_servers.conductor.state_folder
    assert folder is not None
    state = State(**json.loads((folder / "servers.json").read_text()))

    tables = database._sql(
        state, "conductor", "select count(*) from information_schema.tables where table_name = 'workflow'"
    )

    assert tables == "1"
    assert list((folder / "conductor").glob("*.db")) == []
