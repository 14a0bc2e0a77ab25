"""A lakeFS whose presigned addresses lead through a fault proxy to the production set's store.

The signature of an address covers the host, so the proxy's address is what lakeFS is told to sign for; the proxy passes
the header on, and the store checks the signature against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import LakefsServer, ObjectStore
from tests.support.faults.proxy import FaultProxy, fault_proxy
from tests.support.servers.own_lakefs import running

GET, PUT, PROBE = r"^GET /.*X-Amz-Signature", r"^PUT /.*X-Amz-Signature", r"^HEAD /$"


@dataclass(frozen=True, slots=True)
class PastLakefs:
    """The server, and what stands between its store and those that it gives addresses to."""

    server: LakefsServer
    proxy: FaultProxy

    def forget(self) -> None:
        """No faults, and nothing seen."""
        self.proxy.faults.clear()
        self.proxy.seen.clear()


@contextmanager
def past_lakefs(store: ObjectStore, folder: Path, **s3: object) -> Iterator[PastLakefs]:
    """A lakeFS of one's own on that store; `s3` are settings of its block store."""
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
            yield PastLakefs(LakefsServer(url, key, secret, namespace=f"s3://{store.bucket}/"), proxy)
