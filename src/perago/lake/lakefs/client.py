"""Sends calls to the lakeFS API: one connection pool per process, finite timeouts, bounded retries with jitter.

Perago has its own client because the official SDK takes longer to import than everything else in the process (decision
0040).  Proxies set in the environment are not used.  Certificates are trusted if OpenSSL trusts them, including those
in `SSL_CERT_FILE` and `SSL_CERT_DIR`.

A call that changes something is sent again only if the server never saw it or reported that it was busy
(`Repeat.UNSENT`).  With `Repeat.UNSEEN`, it is not sent again to a busy server either, and the caller decides how to
proceed.  Idempotent calls are also sent again after 5xx responses and broken connections (`Repeat.ALWAYS`).  No layer
below this one retries: urllib3's own retries are off, because they would repeat a hard reset.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import urllib3

from perago.errors import LakeBusy, LakeError, LakeUnavailable
from perago.lake.lakefs.api import Json, Request
from perago.lake.lakefs.errors import (
    StatusError,
    address_of,
    gave_no_answer,
    is_busy,
    is_own_answer,
    not_lakefs,
    translate,
    was_not_sent,
)
from perago.lake.lakefs.response_timeouts import BoundedPools
from perago.protocol.backoff import Backoff


class Repeat(Enum):
    """The conditions under which a failed call is sent again."""

    ALWAYS = "idempotent: busy, 5xx, cut connections"
    UNSENT = "only if nothing can have happened: busy, or no connection"
    UNSEEN = "only if the server never saw it: no connection"


@dataclass(frozen=True, slots=True)
class Options:
    """The lakeFS adapter's timeouts, retries and parallelism.  Tests pass their own clock, sleep and random."""

    connect_timeout: float = 5
    read_timeout: float = 30
    commit_timeout: float = 120
    object_timeout: float = 300
    tries: int = 8
    backoff_seconds: float = 0.1
    backoff_longest: float = 5
    parallel: int = 16
    multipart_bytes: int = 16 * 1024 * 1024
    part_bytes: int = 8 * 1024 * 1024
    most_parts: int = 10_000
    ranges_above_bytes: int = 256 * 1024 * 1024
    hashed_below: int = 64 * 1024 * 1024
    """Up to this rate, in bytes per second per core, downloads are hashed as they arrive (see `transfer.hashing`)."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.Random)

    def delay(self, failures: int) -> float:
        """Return the delay after `failures` failures: random, up to a bound that doubles with each failure."""
        backoff = Backoff(self.backoff_seconds, longest=self.backoff_longest, jitter=(0.0, 1.0))
        return backoff.delay(failures, self.random)

    def timeout(self, timeout: float | None, within: float | None) -> urllib3.Timeout:
        """Return the timeouts for one try.

        `timeout`, if given, is the total timeout.  Otherwise the usual timeouts apply, each capped at `within`.
        """
        if timeout:
            return urllib3.Timeout(total=timeout)
        longest = math.inf if within is None else within
        return urllib3.Timeout(
            connect=min(self.connect_timeout, longest), read=min(self.read_timeout, longest)
        )


class LakeFSClient:
    """Makes the adapter's calls to the lakeFS API.  Thread-safe and fork-safe."""

    def __init__(self, endpoint: str, keys: tuple[str, str], options: Options) -> None:
        self._base = f"{endpoint}/api/v1"
        self._headers = {
            "User-Agent": "perago",
            "Accept": "application/json",
            **urllib3.make_headers(basic_auth=":".join(keys)),
        }
        self._address = address_of(endpoint)
        self._options = options
        self._lock = threading.Lock()
        self._pools: BoundedPools | None = None
        self._owner = 0
        self.breaks = 0
        """The number of broken connections so far.  After each of them, the server may be a different process."""

    def call(
        self,
        doing: str,
        request: Request,
        *,
        repeat: Repeat,
        status: int | None = None,
        timeout: float | None = None,
        within: float | None = None,
    ) -> Any:
        """Make one call, retrying as `repeat` allows.  Returns parsed JSON, or bytes if the request is raw.

        `timeout` limits each try as well as all tries together.  `within` limits all tries together, while each try has
        the usual timeouts.  `status` is the status that lakeFS itself sends on success.  Raises
        `LakeUnavailable` if the response has a different one, because it may have come from a proxy.
        """
        found, answer = self._persist(doing, request, repeat, timeout, within)
        if status is not None and found != status:
            raise LakeUnavailable(f"{doing}: the answer has status {found}, and lakeFS would say {status}")
        return answer

    def _persist(
        self, doing: str, request: Request, repeat: Repeat, timeout: float | None, within: float | None
    ) -> tuple[int, Any]:
        """Send a request, retrying as `repeat` allows.  Returns the status and the response."""
        options = self._options
        limit = options.timeout(timeout, within)
        bound = timeout or within
        ends = options.clock() + bound if bound is not None else None
        failures = 0
        while True:
            try:
                return self._send(request, limit)
            except Exception as error:
                if gave_no_answer(error):
                    self._count_break()
                failures += 1
                delay = options.delay(failures)
                late = ends is not None and options.clock() + delay >= ends
                if failures >= options.tries or late or not _may_repeat(error, repeat):
                    raise _final(error, doing, self._address) from error
            options.sleep(delay)

    def pages(self, doing: str, page: Callable[[str], Request], *, after: str = "") -> Iterator[list[Json]]:
        """Yield the results of a paged listing, one page at a time, starting after the name `after`.

        `page(name)` returns the request for the page that starts after `name`.  Raises `LakeError` if the server
        returns to an earlier page.
        """
        more = True
        seen: set[str] = set()
        while more:
            if after in seen:
                raise LakeError(
                    f"{doing}: the server returned to the page after {after!r}, so the listing would never end"
                )
            seen.add(after)
            answer = self.call(doing, page(after), repeat=Repeat.ALWAYS)
            try:
                results, marks = answer["results"], answer["pagination"]
                following, more = marks["next_offset"], marks["has_more"]
            except (KeyError, TypeError) as error:
                raise not_lakefs(doing, self._address) from error
            yield results
            after = following

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            pools, self._pools = self._pools, None
        if pools is not None and self._owner == os.getpid():
            pools.clear()

    def _send(self, request: Request, limit: urllib3.Timeout) -> tuple[int, Any]:
        """Send a request once.  Raises `StatusError` if the response has an unsuccessful status."""
        headers = {**self._headers, **request.headers}
        content = request.content
        if content is not None:
            headers["Content-Type"] = "application/octet-stream"
        elif request.body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(request.body).encode()
        answer = self._open().urlopen(
            request.method,
            self._base + request.target,
            body=content,
            headers=headers,
            timeout=limit,
            redirect=False,
        )
        if not 200 <= answer.status <= 299:
            raise StatusError(answer.status, answer.reason or "", answer.data.decode("utf-8", "replace"))
        return answer.status, answer.data if request.raw else json.loads(answer.data)

    def _count_break(self) -> None:
        self.breaks += 1

    def _open(self) -> BoundedPools:
        # A forked process must not write to its parent's sockets.
        if self._pools is None or self._owner != os.getpid():
            with self._lock:
                if self._pools is None or self._owner != os.getpid():
                    # False, not 0: urllib3 then raises its own errors unwrapped and follows no redirects.
                    self._pools = BoundedPools(
                        self._count_break, maxsize=self._options.parallel, retries=False
                    )
                    self._owner = os.getpid()
                return self._pools
        return self._pools


def _may_repeat(error: BaseException, repeat: Repeat) -> bool:
    if was_not_sent(error):
        return True
    if is_busy(error):
        return repeat is not Repeat.UNSEEN
    return repeat is Repeat.ALWAYS and isinstance(translate(error, ""), LakeUnavailable)


def _final(error: BaseException, doing: str, address: str) -> Exception:
    if is_busy(error) and is_own_answer(error):
        return LakeBusy(f"{translate(error, doing)} (busy; nothing changed, and it is not sent again)")
    return translate(error, doing, address)
