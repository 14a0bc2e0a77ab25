"""Server calls of one attempt that changes one file, counted by proxies in front of both servers, not in a client.

The worker has one slot.  Its first attempt is not counted, because it includes the calls that a worker makes only once.
The second attempt, on an input that the worker has not seen, is counted.  docs/publication.md lists the calls by name,
and tests/runtime/worker/test_server_calls.py enforces that list.

The figures from before are the same count at commit 256958f (decision 0023).
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from bench import Row
from bench.harness import Context, create_repository, lakefs_client, lakefs_lake
from bench.worker import OURS, Site
from perago.lake.lakefs.fence import Fence
from tests.support.faults.proxy import FaultProxy, fault_proxy
from tests.support.servers.server_calls import FENCES, LAST, calls

NAME = "Server calls of one attempt"
SERVERS = True
BEFORE = {"proven": 23, "soft": 24}
_ONE_SLOT = [*OURS[: OURS.index("-j")], "-j", "1", *OURS[OURS.index("-j") + 2 :]]
_LONGEST_WAIT = 60.0


def run() -> list[Row]:
    """Measure all figures."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        for kind in FENCES:
            seen = _count(Context(Path(folder)), kind)
            for name, count in sorted(seen.items()):
                print(f"  {kind}: {count} × {name}")
            rows.append(Row(f"{kind} fence: server calls", seen.total(), "calls", BEFORE[kind]))
            rows.append(Row(f"{kind} fence: before decision 0023", BEFORE[kind], "calls"))
    return rows


class _OneSlot(Site):
    """A site whose worker has one executor."""

    def worker(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which that worker runs."""
        return self._process(_ONE_SLOT, name)


def _count(context: Context, kind: str) -> Counter[str]:
    site = Site(context, lakefs_client(context), f"bench-calls-{uuid.uuid4().hex[:8]}")
    create_repository(site.server, site.repository)
    if kind == "proven":
        with closing(lakefs_lake(context, context.folder / "cache")) as lake:
            Fence(lake).install(site.repository, "main")
    name = site.define("calls")
    with ExitStack() as opened:
        conductor = urlsplit(context.needed("CONDUCTOR_SERVER_URL"))
        proxies = [
            opened.enter_context(fault_proxy(context.needed("LAKECTL_SERVER_ENDPOINT_URL"))),
            opened.enter_context(fault_proxy(f"{conductor.scheme}://{conductor.netloc}")),
        ]
        through = {
            **context.environ,
            "LAKECTL_SERVER_ENDPOINT_URL": proxies[0].url,
            "CONDUCTOR_SERVER_URL": proxies[1].url + conductor.path,
        }
        behind = _OneSlot(replace(context, environ=through), site.server, site.repository)
        with behind.worker(name):
            _until_clean(site, name, 1, proxies)
            for proxy in proxies:
                proxy.answered.clear()
            _until_clean(site, name, 2, proxies)
        return _seen(proxies)


def _until_clean(site: Site, name: str, number: int, proxies: list[FaultProxy]) -> None:
    """Run one attempt, and wait until its last calls have been made."""
    site.completed(site.start(name, number))
    until = time.monotonic() + _LONGEST_WAIT
    while not set(_seen(proxies)) >= LAST:
        if time.monotonic() > until:
            raise SystemExit(f"an attempt is not cleaned up after {_LONGEST_WAIT:.0f} s")
        time.sleep(0.05)


def _seen(proxies: list[FaultProxy]) -> Counter[str]:
    return calls([one for proxy in proxies for one in proxy.answered])
