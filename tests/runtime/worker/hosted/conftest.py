"""The worker's end of connections to hosts, on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perago.runtime.worker.hosted.engine import Endpoint
from perago.runtime.worker.hosted.transport import HostListener


@pytest.fixture
def board() -> Iterator[HostListener]:
    made = HostListener(Endpoint("127.0.0.1", "127.0.0.1"))
    yield made
    made.close()
