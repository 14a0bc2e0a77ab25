"""The kinds of servers that benches run on: trial servers, which store everything in files, and production servers.

    trial         the servers in the environment, from `dev/servers up`
    production    lakeFS on PostgreSQL and S3, Conductor on PostgreSQL, from `dev/servers up --production`

The production set is started when the first bench needs it. `make bench` stops it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRIAL, PRODUCTION = "trial", "production"
BOTH = (TRIAL, PRODUCTION)
_SERVERS = Path(__file__).parents[1] / "dev" / "servers"


@contextmanager
def environment_of(kind: str) -> Iterator[None]:
    """Make the environment name the servers of this kind, for the duration of the block."""
    if kind == TRIAL:
        yield
        return
    before = dict(os.environ)
    command = [_SERVERS, "--set", PRODUCTION]
    subprocess.run([*command, "up", "--production"], check=True, stdout=subprocess.DEVNULL)
    lines = subprocess.run([*command, "env"], check=True, stdout=subprocess.PIPE, text=True).stdout
    os.environ.update(word.split("=", 1) for word in shlex.split(lines) if "=" in word)
    # A bench that restarts a server must restart one from this set.
    os.environ["PERAGO_DEV_SET"] = PRODUCTION
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
