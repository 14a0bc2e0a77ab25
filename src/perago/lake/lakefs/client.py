"""Calls to the lakeFS API: one pooled client per process, finite time-outs, bounded retries with jitter.

The rule: a call that changes something is sent again only if the server never saw it or said that it was busy
(`Repeat.UNSENT`; with `Repeat.UNSEEN` the caller decides what a busy server means); idempotent calls are also sent again
after 5xx and cut connections (`Repeat.ALWAYS`).  Nothing below this file retries: urllib3's own retries, which would
repeat a hard reset, are off.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import urllib3

from perago.errors import LakeBusy, LakeError, LakeUnavailable
from perago.lake.lakefs.errors import (
    address_of,
    gave_no_answer,
    is_busy,
    is_own_answer,
    not_lakefs,
    translate,
    was_not_sent,
)
from perago.lake.lakefs.response_timeouts import bound_answers
from perago.lake.lakefs.sdk import sdk
from perago.protocol.backoff import Backoff

Json = dict[str, Any]
Timeout = tuple[float, float] | float


class Repeat(Enum):
    """The condition for sending a failed call again."""

    ALWAYS = "idempotent: busy, 5xx, cut connections"
    UNSENT = "only if nothing can have happened: busy, or no connection"
    UNSEEN = "only if the server never saw it: no connection"


@dataclass(frozen=True, slots=True)
class Options:
    """Time-outs, retries and parallelism of the adapter; tests pass their own clock, sleep and random."""

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
    """Bytes per second and core up to which downloads are hashed as they arrive; see `transfer.hashing`."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.Random)

    def delay(self, failures: int) -> float:
        """Return the delay after `failures` failures: random, up to a bound that doubles."""
        backoff = Backoff(self.backoff_seconds, longest=self.backoff_longest, jitter=(0.0, 1.0))
        return backoff.delay(failures, self.random)


class Apis:
    """The SDK's APIs that Perago uses, over one connection pool."""

    def __init__(self, configuration: Any, on_reconnect: Callable[[], None]) -> None:
        client = _PlainClient(configuration)
        self.pool: urllib3.PoolManager = client.rest_client.pool_manager
        bound_answers(self.pool, on_reconnect)
        self.branches = sdk.BranchesApi(client)
        self.commits = sdk.CommitsApi(client)
        self.config = sdk.ConfigApi(client)
        self.experimental = sdk.ExperimentalApi(client)
        self.objects = sdk.ObjectsApi(client)
        self.refs = sdk.RefsApi(client)
        self.repositories = sdk.RepositoriesApi(client)
        self.staging = sdk.StagingApi(client)
        self.tags = sdk.TagsApi(client)


Call = Callable[[Apis, Timeout], Any]


class LakeFSClient:
    """Makes the adapter's calls to the lakeFS API; safe for threads and after a fork."""

    def __init__(self, endpoint: str, keys: tuple[str, str], options: Options) -> None:
        self._configuration = sdk.Configuration(host=f"{endpoint}/api/v1", username=keys[0], password=keys[1])
        # False, not 0: urllib3 then raises its own errors as they are and follows no redirect.
        self._configuration.retries = False
        self._configuration.connection_pool_maxsize = options.parallel
        self._address = address_of(endpoint)
        self._options = options
        self._lock = threading.Lock()
        self._apis: Apis | None = None
        self._owner = 0
        self.breaks = 0
        """The number of broken connections: after each, the server may be another process."""

    def call(
        self,
        doing: str,
        call: Call,
        *,
        repeat: Repeat,
        timeout: float | None = None,
        within: float | None = None,
    ) -> Any:
        """Make one call, with retries as `repeat` allows.

        `timeout` limits each try and all tries together; `within` limits all tries together, each of which has the usual
        time-outs.
        """
        options = self._options
        usual = (options.connect_timeout, options.read_timeout)
        if within is not None:
            usual = (min(usual[0], within), min(usual[1], within))
        limit: Timeout = timeout or usual
        bound = timeout or within
        ends = options.clock() + bound if bound is not None else None
        failures = 0
        while True:
            try:
                return call(self._open(), limit)
            except Exception as error:
                if gave_no_answer(error):
                    self._count_break()
                failures += 1
                delay = options.delay(failures)
                late = ends is not None and options.clock() + delay >= ends
                if failures >= options.tries or late or not _may_repeat(error, repeat):
                    raise _final(error, doing, self._address) from error
            options.sleep(delay)

    def pages(
        self, doing: str, page: Callable[[Apis, Timeout, str], Any], *, after: str = ""
    ) -> Iterator[list[Json]]:
        """Yield the results of a paged listing, one page at a time.  Raises `LakeError` if the pages repeat."""
        more = True
        seen: set[str] = set()
        while more:
            if after in seen:
                raise LakeError(
                    f"{doing}: the server returned to the page after {after!r}, so the listing would never end"
                )
            seen.add(after)
            answer = self.call(doing, partial(_page_at, page, after), repeat=Repeat.ALWAYS)
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
            apis, self._apis = self._apis, None
        if apis is not None and self._owner == os.getpid():
            apis.pool.clear()

    def _count_break(self) -> None:
        self.breaks += 1

    def _open(self) -> Apis:
        # A forked process must not write to its parent's sockets.
        if self._apis is None or self._owner != os.getpid():
            with self._lock:
                if self._apis is None or self._owner != os.getpid():
                    self._apis = Apis(self._configuration, self._count_break)
                    self._owner = os.getpid()
                return self._apis
        return self._apis


class _PlainClient(sdk.ApiClient):  # type: ignore[misc]
    """Returns answers as plain JSON: a model per object would cost more than the call."""

    def deserialize(self, response: Any, response_type: Any) -> Any:
        return response.data if response_type == "str" else json.loads(response.data)


def check_status(answer: Any, expected: int, doing: str) -> None:
    """Raise `LakeUnavailable` unless the answer has lakeFS's own status; a proxy's answer proves nothing."""
    if answer.status_code != expected:
        raise LakeUnavailable(
            f"{doing}: the answer has status {answer.status_code}, and lakeFS would say {expected}"
        )


def _page_at(page: Callable[[Apis, Timeout, str], Any], after: str, apis: Apis, limit: Timeout) -> Any:
    return page(apis, limit, after)


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
