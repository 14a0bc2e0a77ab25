"""A real lakeFS that enforces a policy on one of its users.

The Community edition has one user, who may do everything.  But its server evaluates policies itself as soon as an auth
service gives it some (`auth.api.endpoint`); this module is such a service, with an administrator and a worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import LakefsServer
from tests.support.servers.own_lakefs import new_keys, running
from tests.support.servers.scripted_server import Answer, Request, scripted

ADMIN, WORKER = "admin", "worker"
EVERYTHING = [{"effect": "allow", "action": ["fs:*", "auth:*", "ci:*"], "resource": "*"}]


@dataclass(slots=True)
class PolicedLakefs:
    """The server with either user's keys; `statement` is what the worker's policy says from now on."""

    statement: list[dict[str, Any]]
    keys: dict[str, tuple[str, str]] = field(repr=False)
    """By access key id: whose it is, and the secret."""
    url: str = ""

    def as_user(self, user: str) -> LakefsServer:
        """The server as this user calls it."""
        key, (_, secret) = next((key, one) for key, one in self.keys.items() if one[0] == user)
        return LakefsServer(self.url, key, secret)

    def answer(self, request: Request) -> Answer:
        """The auth service's answer to lakeFS."""
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
        return 404, {"message": f"{request.method} {request.path} is not played here"}


@contextmanager
def policed_lakefs(folder: Path, statement: list[dict[str, Any]]) -> Iterator[PolicedLakefs]:
    """A lakeFS of the caller's own, whose worker may do what the statement says."""
    (admin, admin_secret), (worker, worker_secret) = new_keys(), new_keys()
    policed = PolicedLakefs(statement, {admin: (ADMIN, admin_secret), worker: (WORKER, worker_secret)})
    with scripted(policed.answer) as service:
        auth = {
            "encrypt": {"secret_key": secrets.token_hex(16)},
            "api": {"endpoint": service.url},
            "ui_config": {"rbac": "internal"},
            # So that a changed policy holds at once.
            "cache": {"enabled": False},
        }
        with running(folder, keys=(admin, admin_secret), auth=auth, installation={}) as (policed.url, *_):
            yield policed
