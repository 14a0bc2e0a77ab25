"""The kinds of servers that benches run on: trial ones, on files of their own, and production ones.

    trial         those of the environment, from `dev/servers up`
    production    lakeFS on PostgreSQL and S3, Conductor on PostgreSQL, from `dev/servers up --production`

The production set starts when the first bench wants it; `make bench` stops it.
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
    """Have the environment name the servers of that kind."""
    if kind == TRIAL:
        yield
        return
    before = dict(os.environ)
    command = [_SERVERS, "--set", PRODUCTION]
    subprocess.run([*command, "up", "--production"], check=True, stdout=subprocess.DEVNULL)
    lines = subprocess.run([*command, "env"], check=True, stdout=subprocess.PIPE, text=True).stdout
    os.environ.update(word.split("=", 1) for word in shlex.split(lines) if "=" in word)
    # A bench that restarts a server restarts one of this set.
    os.environ["PERAGO_DEV_SET"] = PRODUCTION
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
