"""Starts the servers in a set, and reads the versions that they report.

    a trial set         lakeFS and Conductor, each with its own files
    a production set    the same two on PostgreSQL, and lakeFS's objects in an S3 store

The rule: a server is up when it is healthy and itself reports the version we want.  Servers that others store their
state in start first.
"""

from __future__ import annotations

import base64
import json
import secrets
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from realservers import (
    CONDUCTOR_VERSION,
    LAKEFS_VERSION,
    POSTGRES_VERSION,
    VERSITYGW_VERSION,
    database,
    store,
)
from realservers.artifacts import (
    SHORT_LIVED,
    conductor_archive,
    conductor_jar,
    conductor_java,
    lakefs_folder,
)
from realservers.process import Process
from realservers.state import State, port_is_free, state_folder
from realservers.tools import DevError

BACKING = ("postgres", "store")
SERVERS = ("lakefs", "conductor")
WANTED = {
    "postgres": POSTGRES_VERSION,
    "store": VERSITYGW_VERSION,
    "lakefs": LAKEFS_VERSION,
    "conductor": CONDUCTOR_VERSION,
}


def names(state: State | None) -> tuple[str, ...]:
    """Return the servers in a set, in the order in which they start."""
    return (*BACKING, *SERVERS) if state is not None and state.production else SERVERS


def process(name: str) -> Process:
    """Return the process of one of this checkout's servers."""
    # On SIGTERM, PostgreSQL waits until all clients have disconnected.
    return Process(name, state_folder(), signal.SIGINT if name == "postgres" else signal.SIGTERM)


def address(name: str, state: State) -> str:
    """Return the address on which a server listens."""
    if name == "postgres":
        return f"127.0.0.1:{state.postgres_port}"
    return {"store": state.store_url, "lakefs": state.lakefs_url, "conductor": state.conductor_url}[name]


def start(name: str, state: State) -> None:
    """Start one server on its port with its existing state, without waiting for it."""
    # Returns once a killed predecessor is completely gone.
    command, secret = _command(name, state)
    port = int(address(name, state).rpartition(":")[2])
    if not port_is_free(port):
        raise DevError(f"{name}'s port {port} is taken by another process: run `dev/servers down`, then `up`")
    process(name).start(command, secret)


def forget(name: str, state: State) -> None:
    """Remove all data of a stopped server, including its database."""
    process(name).forget()
    if state.production and name in SERVERS:
        database.drop(state, name)


def help_along(name: str, state: State) -> None:
    """Complete the start of a server that cannot do so by itself: lakeFS on PostgreSQL is set up by a call."""
    if name != "lakefs" or not state.production:
        return
    url = f"{state.lakefs_url}/api/v1/setup_lakefs"
    try:
        if _call(url, 5)["state"] == "initialized":
            return
        keys = {"access_key_id": state.access_key_id, "secret_access_key": state.secret_access_key}
        _call(url, 30, body={"username": "dev", "key": keys})
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError):
        return


def reported_version(name: str, state: State, *, timeout: float = 5) -> str | None:
    """Return the version that a healthy server reports, or None if it is not healthy."""
    try:
        if name == "postgres":
            return database.version(state, timeout)
        if name == "store":
            return store.version(state, timeout)
        if name == "lakefs":
            answer = _call(f"{state.lakefs_url}/api/v1/config/version", timeout, _basic_auth(state))
            return str(answer["version"])
        if _call(f"{state.conductor_url}/health", timeout).get("healthy") is not True:
            return None
        return str(_call(f"{state.conductor_url}/actuator/info", timeout)["build"]["version"])
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError):
        return None


def _command(name: str, state: State) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts a server, and the secrets for its environment."""
    if name == "postgres":
        return database.command(state), {}
    if name == "store":
        return store.command(state), store.secrets(state)
    return (_lakefs_command(state), {}) if name == "lakefs" else _conductor_command(state)


def _lakefs_command(state: State) -> list[str]:
    home = state_folder() / "lakefs"
    home.mkdir(exist_ok=True)
    config = home / "lakefs.yaml"
    if not config.exists():
        config.touch(mode=0o600)
        # JSON is valid YAML.
        config.write_text(json.dumps(lakefs_settings(state, home), indent=2))
    if state.production:
        database.ensure(state, "lakefs")
    return [str(lakefs_folder() / "lakefs"), "--config", str(config), "run"]


def lakefs_settings(state: State, home: Path) -> dict[str, object]:
    """Return the settings of a lakeFS that keeps everything in this set and contacts nothing outside it."""
    return {
        "listen_address": f"127.0.0.1:{state.lakefs_port}",
        "logging": {"format": "text", "level": "INFO"},
        **(_backed_by_servers(state) if state.production else _backed_by_files(home)),
        "committed": {"local_cache": {"dir": str(home / "cache")}},
        "auth": {"encrypt": {"secret_key": secrets.token_hex(16)}},
        "installation": {
            "user_name": "dev",
            "access_key_id": state.access_key_id,
            "secret_access_key": state.secret_access_key,
        },
        "stats": {"enabled": False},
        "email_subscription": {"enabled": False},
        "security": {"check_latest_version": False, "audit_check_interval": "0s"},
    }


def _backed_by_files(home: Path) -> dict[str, object]:
    return {
        "database": {"type": "local", "local": {"path": str(home / "metadata")}},
        "blockstore": {"type": "local", "local": {"path": str(home / "blocks")}},
    }


def _backed_by_servers(state: State) -> dict[str, object]:
    where = f"{database.USER}:{state.backing_secret}@127.0.0.1:{state.postgres_port}/lakefs"
    keys = {"access_key_id": state.store_key_id, "secret_access_key": state.backing_secret}
    s3 = {
        "endpoint": state.store_url,
        "pre_signed_endpoint": state.store_url,
        "force_path_style": True,
        "discover_bucket_region": False,
        "region": store.REGION,
        "credentials": keys,
    }
    return {
        "database": {
            "type": "postgres",
            "postgres": {"connection_string": f"postgres://{where}?sslmode=disable"},
        },
        "blockstore": {
            "type": "s3",
            "s3": s3,
            "default_namespace_prefix": f"s3://{store.BUCKET}",
        },
    }


def _conductor_command(state: State) -> tuple[list[str], dict[str, str]]:
    # A trial server keeps its SQLite file in its working directory, which is below the state folder.
    temporary = state_folder() / "conductor" / "tmp"
    archive = conductor_archive()
    # An archive that this Java cannot use is ignored.
    quick = [*SHORT_LIVED, *([f"-XX:AOTCache={archive}"] if archive is not None else [])]
    java = [str(conductor_java()), *quick, f"-Djava.io.tmpdir={temporary}"]
    # By default, an idle Conductor polls for its system tasks 20 times a second per task type, which takes a quarter of
    # a core.  Joins wait for that poll.
    quiet = ["--conductor.app.systemTaskWorkerPollInterval=1s"]
    # The scheduler waits 15 s after the start by default, so a test of schedules would, too.
    schedules = ["--conductor.scheduler.enabled=true", "--conductor.scheduler.initialDelayMs=1000"]
    where = [f"--server.port={state.conductor_port}", "--server.address=127.0.0.1"]
    command = [*java, "-jar", str(conductor_jar()), *where, *quiet, *schedules]
    if not state.production:
        return command, {}
    kept = [f"--conductor.{what}.type=postgres" for what in ("db", "queue", "indexing")]
    source = [
        f"--spring.datasource.url=jdbc:postgresql://{database.ensure(state, 'conductor')}",
        f"--spring.datasource.username={database.USER}",
    ]
    return [*command, *kept, *source], {"SPRING_DATASOURCE_PASSWORD": state.backing_secret}


def _basic_auth(state: State) -> str:
    pair = f"{state.access_key_id}:{state.secret_access_key}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _call(
    url: str, timeout: float, authorization: str | None = None, *, body: object = None
) -> dict[str, Any]:
    request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    if authorization:
        request.add_header("Authorization", authorization)
    # No proxy: the servers are on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as response:
        answer: dict[str, Any] = json.load(response)
    return answer
