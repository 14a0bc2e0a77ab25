"""A lakeFS that a test starts for itself, with settings that the shared one must not have.

The executable is the one that `dev/servers` builds; a test is skipped if it is not built yet.

`presigned_lakefs` signs URLs that lead through a fault proxy to the production set's store.  A signature covers the host, so
lakeFS is told to sign for the proxy; the proxy passes the header on, and the store checks the signature against it.

`policed_lakefs` enforces a policy on one of its users.  The Community edition has one user, who may do everything.  But its
server evaluates policies itself as soon as an auth service provides some (`auth.api.endpoint`); `PolicedLakefs` is such a
service, with an administrator and a worker.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from realservers import LAKEFS_VERSION
from realservers.fleet import lakefs_settings, reported_version
from realservers.process import Process
from realservers.state import State, free_ports
from realservers.tools import cache_folder
from tests.conftest import LakefsServer, ObjectStore
from tests.support.faults.proxy import FaultProxy, fault_proxy
from tests.support.servers.scripted_server import Answer, Request, scripted

_START_SECONDS = 60


def new_keys() -> tuple[str, str]:
    """Return a key pair in the form that lakeFS accepts."""
    return "AKIA" + secrets.token_hex(8).upper(), secrets.token_urlsafe(30)


@contextmanager
def running(
    folder: Path, *, keys: tuple[str, str] | None = None, **settings: object
) -> Iterator[tuple[str, str, str]]:
    """Run a lakeFS and yield its address and keys; `settings` are top-level parts of its configuration."""
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


# --- presigned URLs through a fault proxy ------------------------------------------------------------------------------


GET, PUT, PROBE = r"^GET /.*X-Amz-Signature", r"^PUT /.*X-Amz-Signature", r"^HEAD /$"


@dataclass(frozen=True, slots=True)
class PresignedLakefs:
    """The server, and the proxy between its store and the users of its presigned URLs."""

    server: LakefsServer
    proxy: FaultProxy

    def forget(self) -> None:
        """Forget all faults and all requests seen."""
        self.proxy.faults.clear()
        self.proxy.seen.clear()


@contextmanager
def presigned_lakefs(store: ObjectStore, folder: Path, **s3: object) -> Iterator[PresignedLakefs]:
    """Run a lakeFS on that store; `s3` are settings of its block store."""
    with fault_proxy(store.url) as proxy:
        keys = {"access_key_id": store.access_key_id, "secret_access_key": store.secret_access_key}
        settings = {
            "endpoint": store.url,
            "pre_signed_endpoint": proxy.url,
            "force_path_style": True,
            "discover_bucket_region": False,
            "region": "us-east-1",
            "credentials": keys,
            **s3,
        }
        with running(folder, blockstore={"type": "s3", "s3": settings}) as (url, key, secret):
            yield PresignedLakefs(LakefsServer(url, key, secret, namespace=f"s3://{store.bucket}/"), proxy)


# --- users with a policy -----------------------------------------------------------------------------------------------


ADMIN, WORKER = "admin", "worker"
EVERYTHING = [{"effect": "allow", "action": ["fs:*", "auth:*", "ci:*"], "resource": "*"}]


@dataclass(slots=True)
class PolicedLakefs:
    """The server with either user's keys; `statement` is what the worker's policy says from now on."""

    statement: list[dict[str, Any]]
    keys: dict[str, tuple[str, str]] = field(repr=False)
    """The user and the secret of each access key id."""
    url: str = ""

    def as_user(self, user: str) -> LakefsServer:
        """Return the server with this user's keys."""
        key, (_, secret) = next((key, one) for key, one in self.keys.items() if one[0] == user)
        return LakefsServer(self.url, key, secret)

    def answer(self, request: Request) -> Answer:
        """Answer lakeFS as its auth service."""
        match request.path.strip("/").split("/"):
            case ["healthcheck"]:
                return 204, ""
            case ["config", "version"]:
                return 200, {"version": "of the tests"}
            case ["auth", "credentials", key] if key in self.keys:
                user, secret = self.keys[key]
                return 200, {
                    "access_key_id": key,
                    "secret_access_key": secret,
                    "creation_date": 0,
                    "user_id": 0,
                    "user_name": user,
                }
            case ["auth", "users", user]:
                return 200, {"username": user, "creation_date": 0}
            case ["auth", "users", user, "policies"]:
                statement = EVERYTHING if user == ADMIN else self.statement
                policy = {"name": user, "creation_date": 0, "statement": statement}
                page = {"has_more": False, "max_per_page": 100, "next_offset": "", "results": 1}
                return 200, {"pagination": page, "results": [policy]}
        return 404, {"message": f"{request.method} {request.path} is not implemented here"}


@contextmanager
def policed_lakefs(folder: Path, statement: list[dict[str, Any]]) -> Iterator[PolicedLakefs]:
    """Run a lakeFS whose worker user may do what the statement allows."""
    (admin, admin_secret), (worker, worker_secret) = new_keys(), new_keys()
    policed = PolicedLakefs(statement, {admin: (ADMIN, admin_secret), worker: (WORKER, worker_secret)})
    with scripted(policed.answer) as service:
        auth = {
            "encrypt": {"secret_key": secrets.token_hex(16)},
            "api": {"endpoint": service.url},
            "ui_config": {"rbac": "internal"},
            # So that a changed policy applies at once.
            "cache": {"enabled": False},
        }
        with running(folder, keys=(admin, admin_secret), auth=auth, installation={}) as (policed.url, *_):
            yield policed
