"""The two servers: how each is started, and what each says of itself.

The rule: a server is up when it is healthy and itself reports the version we want.
"""

from __future__ import annotations

import base64
import json
import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from realservers import CONDUCTOR_VERSION, LAKEFS_VERSION
from realservers.artifacts import conductor_jar, lakefs_folder
from realservers.process import Process
from realservers.state import State, port_is_free, state_folder
from realservers.tools import DevError, java_command

WANTED = {"lakefs": LAKEFS_VERSION, "conductor": CONDUCTOR_VERSION}


def process(name: str) -> Process:
    """The process of one server of this checkout."""
    return Process(name, state_folder())


def address(name: str, state: State) -> str:
    """Where one server listens."""
    return state.lakefs_url if name == "lakefs" else state.conductor_url


def start(name: str, state: State) -> None:
    """Start one server on its port with what state it has; does not wait for it."""
    port = state.lakefs_port if name == "lakefs" else state.conductor_port
    if not port_is_free(port):
        raise DevError(f"{name}'s port {port} is taken by another process: run `dev/servers down`, then `up`")
    command = _lakefs_command(state) if name == "lakefs" else _conductor_command(state)
    process(name).start(command)


def reported_version(name: str, state: State, *, timeout: float = 5) -> str | None:
    """The version that a healthy server reports, or nothing while it is not healthy."""
    try:
        if name == "lakefs":
            answer = _get(f"{state.lakefs_url}/api/v1/config/version", timeout, _basic_auth(state))
            return str(answer["version"])
        if _get(f"{state.conductor_url}/health", timeout).get("healthy") is not True:
            return None
        return str(_get(f"{state.conductor_url}/actuator/info", timeout)["build"]["version"])
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError):
        return None


def _lakefs_command(state: State) -> list[str]:
    home = state_folder() / "lakefs"
    home.mkdir(exist_ok=True)
    config = home / "lakefs.yaml"
    if not config.exists():
        config.touch(mode=0o600)
        # JSON is YAML too.
        config.write_text(json.dumps(lakefs_settings(state, home), indent=2))
    return [str(lakefs_folder() / "lakefs"), "--config", str(config), "run"]


def lakefs_settings(state: State, home: Path) -> dict[str, object]:
    """A lakeFS that keeps everything below `home` and asks nobody on the network."""
    return {
        "listen_address": f"127.0.0.1:{state.lakefs_port}",
        "logging": {"format": "text", "level": "INFO"},
        "database": {"type": "local", "local": {"path": str(home / "metadata")}},
        "blockstore": {"type": "local", "local": {"path": str(home / "blocks")}},
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


def _conductor_command(state: State) -> list[str]:
    # It keeps its SQLite file in its current folder, which is below the state folder.
    temporary = state_folder() / "conductor" / "tmp"
    # A trial server's life is short, so the second compiler does not pay; an idle one looks for work of its own 20 times
    # a second for each of its task types, which takes a quarter of a core.
    java = [java_command(), "-Xmx1g", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={temporary}"]
    quiet = ["--conductor.app.systemTaskWorkerPollInterval=250ms", "--conductor.scheduler.enabled=false"]
    where = [f"--server.port={state.conductor_port}", "--server.address=127.0.0.1"]
    return [*java, "-jar", str(conductor_jar()), *where, *quiet]


def _basic_auth(state: State) -> str:
    pair = f"{state.access_key_id}:{state.secret_access_key}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _get(url: str, timeout: float, authorization: str | None = None) -> dict[str, Any]:
    request = urllib.request.Request(url)
    if authorization:
        request.add_header("Authorization", authorization)
    # No proxy: the servers are on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as response:
        answer: dict[str, Any] = json.load(response)
    return answer
