"""A lakeFS that a test starts for itself, with settings that the shared one must not have.

It is the executable that `dev/servers` builds; where that is not built yet the test is skipped.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from realservers import LAKEFS_VERSION
from realservers.fleet import lakefs_settings, reported_version
from realservers.process import Process
from realservers.state import State, free_ports
from realservers.tools import cache_folder

_START_SECONDS = 60


def new_keys() -> tuple[str, str]:
    """Keys as lakeFS takes them."""
    return "AKIA" + secrets.token_hex(8).upper(), secrets.token_urlsafe(30)


@contextmanager
def running(
    folder: Path, *, keys: tuple[str, str] | None = None, **settings: object
) -> Iterator[tuple[str, str, str]]:
    """Its address and keys; `settings` are top-level parts of its configuration."""
    executable = cache_folder() / f"lakefs-{LAKEFS_VERSION}" / "lakefs"
    if not executable.exists():
        pytest.skip("lakeFS is not built: run `dev/servers up`")
    key, secret = keys or new_keys()
    state = State(lakefs_port=free_ports(1)[0], conductor_port=0, access_key_id=key, secret_access_key=secret)
    config = folder / "lakefs.yaml"
    config.touch(mode=0o600)
    config.write_text(json.dumps({**lakefs_settings(state, folder), **settings}))
    server = Process("own", folder)
    server.start([str(executable), "--config", str(config), "run"])
    try:
        until = time.monotonic() + _START_SECONDS
        while reported_version("lakefs", state) is None:
            if time.monotonic() > until:
                pytest.fail(f"lakeFS did not start: {server.log_tail()}")
            time.sleep(0.1)
        yield state.lakefs_url, state.access_key_id, state.secret_access_key
    finally:
        server.stop()
