"""Hashing beside a transfer: the same digests as on the way, bounded memory, and no deadlock."""

from __future__ import annotations

import hashlib
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from perago.lake.lakefs.transfer.concurrency import MemoryBudget
from perago.lake.lakefs.transfer.hashing import Digests, Hashers

PIECES = [bytes([number]) * (1000 + number) for number in range(200)]


def whole(pieces: list[bytes]) -> Digests:
    data = b"".join(pieces)
    return Digests(hashlib.md5(data).hexdigest(), zlib.crc32(data), len(data))


@pytest.mark.parametrize("cores", [1, 8])
@pytest.mark.parametrize("room", [1, 3_000, 10**9], ids=["none", "a little", "enough"])
def test_a_stream_comes_to_what_its_bytes_come_to_whoever_has_room_and_time(room: int, cores: int) -> None:
    budget = MemoryBudget(room)
    with Hashers(budget, cores=cores) as hashers:
        digest = hashers.stream()
        for piece in PIECES:
            digest.update(piece)
        assert digest.result() == whole(PIECES)
    assert budget.take(room, wait=False), "all of it was given back"


@pytest.mark.parametrize("cores", [2, 6, 100])
def test_many_streams_at_once_do_not_get_into_each_other(cores: int) -> None:
    with Hashers(MemoryBudget(20_000), cores=cores) as hashers, ThreadPoolExecutor(8) as transfers:

        def transfer(number: int) -> bool:
            mine = PIECES[number:] + PIECES[:number]
            digest = hashers.stream()
            for piece in mine:
                digest.update(piece)
            return digest.result() == whole(mine)

        assert all(transfers.map(transfer, range(40)))


def test_adding_bytes_does_not_wait_until_they_are_hashed() -> None:
    pool, gate = ThreadPoolExecutor(1), threading.Event()
    with Hashers(MemoryBudget(10**6), cores=2, pool=pool) as hashers:
        pool.submit(gate.wait)
        digest = hashers.stream()
        # The only thread that hashes is busy, and these come back all the same.
        digest.update(b"one")
        digest.update(b"two")
        gate.set()
        assert digest.result() == whole([b"one", b"two"])


def test_bytes_of_a_failed_transfer_are_dropped_and_their_room_released() -> None:
    budget, pool, gate = MemoryBudget(100), ThreadPoolExecutor(1), threading.Event()
    with Hashers(budget, cores=2, pool=pool) as hashers:
        pool.submit(gate.wait)
        digest = hashers.stream()
        digest.update(b"x" * 60)
        threading.Timer(0.05, gate.set).start()
        digest.drop()
    assert budget.take(100, wait=False)


def test_with_as_many_streams_as_cores_each_hashes_its_own() -> None:
    pool, gate = ThreadPoolExecutor(1), threading.Event()
    with Hashers(MemoryBudget(10**6), cores=2, pool=pool) as hashers:
        pool.submit(gate.wait)
        one, two = hashers.stream(), hashers.stream()
        # No other thread hashes: the only one waits.
        one.update(b"one")
        two.update(b"two")
        assert (one.result(), two.result()) == (whole([b"one"]), whole([b"two"]))
        # Both have ended, so the next one has a core for it.
        three = hashers.stream()
        three.update(b"three")
        gate.set()
        assert three.result() == whole([b"three"])


class TestDeferring:
    """Streams whose MD5 may be left unfinished, at a clock of the test's own."""

    def test_the_md5_is_finished_on_a_slow_connection(self) -> None:
        now = iter(range(10**6))
        with Hashers(
            MemoryBudget(10**6), cores=2, hashed_below=10_000, clock=lambda: float(next(now))
        ) as hashers:
            digest = hashers.stream(may_defer=True)
            for piece in PIECES:
                digest.update(piece)
            assert digest.result() == whole(PIECES)

    @pytest.mark.parametrize("cores", [1, 8])
    def test_hashing_continues_where_it_was_deferred_on_a_fast_connection(self, cores: int) -> None:
        with Hashers(MemoryBudget(10**6), cores=cores, hashed_below=100_000, clock=lambda: 0.0) as hashers:
            digest = hashers.stream(may_defer=True)
            for piece in PIECES:
                digest.update(piece)
            found = digest.result()
        data = b"".join(PIECES)
        assert found.partial is not None
        assert 0 < found.partial.at < len(data)
        found.partial.md5.update(data[found.partial.at :])
        assert (found.partial.md5.hexdigest(), found.crc, found.size) == (
            whole(PIECES).md5,
            zlib.crc32(data),
            len(data),
        )

    def test_a_stream_that_may_not_leave_it_does_not(self) -> None:
        with Hashers(MemoryBudget(10**6), cores=2, hashed_below=0) as hashers:
            digest = hashers.stream()
            for piece in PIECES:
                digest.update(piece)
            assert digest.result() == whole(PIECES)
