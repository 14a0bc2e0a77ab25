"""The lakeFS lake under test: the one place that makes it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from perago.lake.lakefs.lake import LakeFSLake

OpenLakeFS = Callable[..., "LakeFSLake"]
"""Takes the `url` and the options of `lakefs_lake`; whoever gives it closes what it opens."""
WITHOUT_WAITING: dict[str, Any] = {"sleep": lambda _: None, "random": random.Random(1)}
"""Options of a lake that does not wait between retries."""


class Server(Protocol):
    """Where a lakeFS is, and the keys to it."""

    @property
    def url(self) -> str:
        """Its root."""

    @property
    def access_key_id(self) -> str:
        """The key's id."""

    @property
    def secret_access_key(self) -> str:
        """The key."""


def lakefs_lake(
    server: Server,
    cache: Path,
    *,
    url: str | None = None,
    cache_bytes: int = 10**9,
    transfer: Any = "auto",
    **options: Any,
) -> LakeFSLake:
    """A lake on a server, or on what stands before it at `url`; `options` are those of its client."""
    # Imported here: the SDK takes a second, and a run without servers does not need it.
    from perago.lake.lakefs.client import Options
    from perago.lake.lakefs.lake import LakeFSLake

    return LakeFSLake(
        url or server.url,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        cache_dir=cache,
        cache_bytes=cache_bytes,
        transfer=transfer,
        options=Options(**options),
    )
