"""The limit in the map bench: the lakeFS calls that one row needs, in a loop, and nothing else.

Perago and Spark are not involved: urllib3 makes the API calls, and obstore moves the bytes.  The calls of one row, in
order:

    1  read the head: the commit to start from     11 put the one object;  12 commit it
    2  put the row's first slot, if there is none  13 read the head: decide
    3  read the head: preflight                    14 list the row's slots: second fence
    4  list the staging and claim branches         15 read the head: a soft fence checks it right before the merge
    5  list the prefix                             16 merge
    6  get the one object                          17 read the new commit: its parent is checked
    7  list the row's slots: first fence           18 put the row's last slot
    8  look for the fence file on the input        19 drop the claim branch
    9  create the staging branch                   20 drop the staging branch
    10 create the claim branch
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any
from urllib.parse import quote

import urllib3
from obstore.store import S3Store

LAKE = os.environ["LAKECTL_SERVER_ENDPOINT_URL"]
KEYS = (
    os.environ["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
    os.environ["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
)
FENCE = "_lakefs_actions/perago-fence.yaml"
RECORD = "bare-record"
SLOT = {"taken": {"execution": "0" * 16, "session": "0" * 16, "ref": "0" * 64, "attempts": 1}}


class Bare:
    """Makes the calls to lakeFS, over one connection pool for all rows."""

    def __init__(self) -> None:
        self._http = urllib3.PoolManager(maxsize=4)
        self._login = urllib3.make_headers(basic_auth=":".join(KEYS))
        self._lake("POST", "", {"name": RECORD, "storage_namespace": f"local://{RECORD}"})

    def row(self, number: int, repository: str) -> None:
        at, step = f"/{repository}", f"bare-row-{number}"
        store = S3Store(
            repository,
            endpoint=LAKE,
            access_key_id=KEYS[0],
            secret_access_key=KEYS[1],
            region="us-east-1",
            client_options={"allow_http": True},
        )
        ref = self._newest(at, "main@")
        self._slot(number, 1)
        self._newest(at, "main@")
        self._lake("GET", f"{at}/branches?prefix=perago-staging-{step}&show_hidden=true&amount=1000")
        [one] = self._lake("GET", f"{at}/refs/{ref}/objects/ls?prefix=data/&amount=1000")["results"]
        store.get(f"{ref}/{one['path']}").bytes()
        self._slots(number)
        with contextlib.suppress(FileNotFoundError):
            store.get(f"{ref}/{FENCE}").bytes()
        staging, claim = f"perago-staging-{step}", f"perago-staging-{step}-claim"
        for name in (staging, claim):
            self._lake("POST", f"{at}/branches", {"name": name, "source": ref, "hidden": True})
        store.put(f"{staging}/{one['path']}", f"number {number}".encode(), use_multipart=False)
        self._lake(
            "POST", f"{at}/branches/{staging}/commits", {"message": "stage", "metadata": {"row": step}}
        )
        self._newest(at, "main@")
        self._slots(number)
        self._newest(at, "main@")
        wanted = {"message": "publish", "metadata": {"row": step}, "squash_merge": True}
        merged = self._lake("POST", f"{at}/refs/{staging}/merge/main", wanted)["reference"]
        self._newest(at, merged)
        self._slot(number, 2)
        self._lake("DELETE", f"{at}/branches/{claim}")
        self._lake("DELETE", f"{at}/branches/{staging}")

    def _newest(self, at: str, ref: str) -> str:
        path = f"{at}/refs/{quote(ref)}/commits?amount=1&limit=true&first_parent=true"
        return str(self._lake("GET", path)["results"][0]["id"])

    def _slot(self, number: int, slot: int) -> None:
        path = f"/{RECORD}/branches/main/objects?path=rows/{number:09d}/{slot:06d}"
        headers = {**self._login, "If-None-Match": "*"}
        fields = {"content": ("slot", json.dumps(SLOT).encode(), "application/octet-stream")}
        answer = self._http.request(
            "POST", f"{LAKE}/api/v1/repositories{path}", fields=fields, headers=headers
        )
        if answer.status != 201:
            raise SystemExit(f"slot {slot} of row {number}: {answer.status} {answer.data!r}")

    def _slots(self, number: int) -> None:
        self._lake("GET", f"/{RECORD}/refs/main/objects/ls?prefix=rows/{number:09d}/&amount=1000")

    def _lake(self, method: str, path: str, body: object = None) -> Any:
        headers = self._login if body is None else {**self._login, "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        answer = self._http.request(method, f"{LAKE}/api/v1/repositories{path}", body=text, headers=headers)
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.data!r}")
        return json.loads(answer.data) if answer.data[:1] in (b"{", b"[") else None


def main() -> None:
    bare = Bare()
    began = time.monotonic()
    for number, repository in enumerate(json.loads(sys.argv[1]), start=1):
        bare.row(number, repository)
    print(json.dumps({"seconds": time.monotonic() - began}))


main()
