"""An attacker between host and worker, or without the key: none of their bytes are unpickled (decision 0039)."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from perago.runtime.worker.executor_protocol import StepStarted
from perago.runtime.worker.hosted.connection import HANDSHAKE_SECONDS, accept
from perago.runtime.worker.hosted.protocol import Accepted, Connect
from perago.runtime.worker.hosted.transport import MOST_STRANGERS, HostListener, call
from tests.support.faults.proxy import Relay, Tamper, relay
from tests.support.worlds.clock import eventually

JOB = "job-1"
FIRST, SECOND, THIRD = StepStarted("e", "input"), StepStarted("e", "body!"), StepStarted("e", "stage")


class Worker:
    """The other end: keeps what is said to it, and knows when a connection is over."""

    def __init__(self, board: HostListener) -> None:
        self.said: SimpleQueue[Any] = SimpleQueue()
        self.over = threading.Semaphore(0)
        board.expect(JOB, self.take)

    def take(self, line: Any, _hello: Connect) -> None:
        try:
            line.send(Accepted(0))
            while True:
                self.said.put(line.recv())
        finally:
            self.over.release()

    def received(self) -> list[Any]:
        """Return all received messages, once the connection is over."""
        assert self.over.acquire(timeout=20)
        messages = []
        while True:
            try:
                messages.append(self.said.get_nowait())
            except Empty:
                return messages


class Bomb:
    """A value that makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def repeat(data: bytes) -> bytes:
    return data * 2


def change(data: bytes) -> bytes:
    return data.replace(b"body!", b"other")


def cut_and_close(data: bytes) -> bytes:
    if b"body!" in data:
        raise OSError("cut in the middle of a message")
    return data


class HoldBack:
    """Passes a message on after the next one."""

    def __init__(self) -> None:
        self.held = b""

    def __call__(self, data: bytes) -> bytes:
        if not self.held:
            self.held = data
            return b""
        return data + self.held


class LeaveOut:
    """Swallows the first message."""

    def __init__(self) -> None:
        self.seen = False

    def __call__(self, data: bytes) -> bytes:
        if not self.seen:
            self.seen = True
            return b""
        return data


@pytest.mark.parametrize("attack", [change, cut_and_close, LeaveOut, HoldBack])
def test_messages_that_were_changed_dropped_or_reordered_are_not_received(
    board: HostListener, attack: Callable[..., Any]
) -> None:
    worker = Worker(board)
    with relay(board.address) as path, call(path.address, board.key, Connect(JOB)) as host:
        assert isinstance(host.recv(), Accepted)
        host.send(FIRST)
        assert worker.said.get(timeout=20) == FIRST
        path.to_server = attack() if isinstance(attack, type) else attack
        host.send(SECOND)
        say_apart(host, THIRD, path)

        assert worker.received() == []


def say_apart(host: Any, message: Any, path: Relay) -> None:
    """Send a message that travels by itself, so that whole messages can be held back."""
    tamper = path.to_server
    if isinstance(tamper, HoldBack):
        eventually(lambda: tamper.held, "the message to be held back")
    if isinstance(tamper, LeaveOut):
        eventually(lambda: tamper.seen, "the message to be swallowed")
    try:
        host.send(message)
    except OSError:
        return  # The connection is over already.


def test_a_replayed_message_is_received_once(board: HostListener) -> None:
    worker = Worker(board)
    with relay(board.address) as path, call(path.address, board.key, Connect(JOB)) as host:
        assert isinstance(host.recv(), Accepted)
        path.to_server = repeat
        host.send(FIRST)

        assert worker.received() == [FIRST]


def test_a_hosts_message_cannot_be_reflected_as_the_workers(board: HostListener) -> None:
    Worker(board)
    with relay(board.address) as path, call(path.address, board.key, Connect(JOB)) as host:
        assert isinstance(host.recv(), Accepted)

        def reflect(data: bytes) -> bytes:
            path.clients[0].sendall(data)
            return b""

        path.to_server = reflect
        host.send(FIRST)

        with pytest.raises((OSError, EOFError)):
            host.recv()


def test_a_message_of_one_connection_is_not_received_on_another(board: HostListener) -> None:
    worker = Worker(board)
    recorded: list[bytes] = []

    def record(data: bytes) -> bytes:
        recorded.append(data)
        return data

    with relay(board.address) as path:
        with call(path.address, board.key, Connect(JOB)) as host:
            assert isinstance(host.recv(), Accepted)
            path.to_server = record
            host.send(FIRST)
            assert worker.said.get(timeout=20) == FIRST
        assert worker.received() == []
        path.to_server = bytes
        with call(path.address, board.key, Connect(JOB)) as host:
            assert isinstance(host.recv(), Accepted)
            path.servers[1].sendall(b"".join(recorded))

            assert worker.received() == []


@pytest.mark.parametrize("to_worker", [True, False])
@pytest.mark.parametrize("frame", ["plain", "with a tag", "endless"])
def test_bytes_injected_between_messages_are_never_unpickled(
    board: HostListener, tmp_path: Path, frame: str, to_worker: bool
) -> None:
    worker = Worker(board)
    bomb = pickle.dumps(Bomb(tmp_path / "it ran"))
    frames = {
        # Framed as by multiprocessing, and as by Perago with a tag that an attacker without the key may choose.
        "plain": struct.pack("!i", len(bomb)) + bomb,
        "with a tag": struct.pack(">Q", len(bomb)) + bytes(32) + bomb + bytes(32),
        # A length alone must not make the other end reserve that much.
        "endless": struct.pack(">Q", 2**62) + bytes(64),
    }
    with relay(board.address) as path, call(path.address, board.key, Connect(JOB)) as host:
        assert isinstance(host.recv(), Accepted)
        if to_worker:
            path.servers[0].sendall(frames[frame] + bytes(100))
            assert worker.received() == []
        else:
            path.clients[0].sendall(frames[frame] + bytes(100))
            with pytest.raises(OSError, match="changed in transit"):
                host.recv()

    assert not (tmp_path / "it ran").exists()


@pytest.mark.parametrize("change_first", ["the worker's", "the host's"])
def test_a_handshake_with_other_nonces_proves_nothing(board: HostListener, change_first: str) -> None:
    taken = threading.Event()
    board.expect(JOB, lambda line, hello: taken.set())

    def flip(data: bytes) -> bytes:
        return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:] if len(data) >= 56 else data

    tampers: dict[str, Tamper] = {"to_client" if "worker" in change_first else "to_server": flip}
    with relay(board.address) as path:
        for name, tamper in tampers.items():
            setattr(path, name, tamper)
        with pytest.raises((OSError, EOFError)):
            call(path.address, board.key, Connect(JOB)).recv()

    assert not taken.is_set()


def test_callers_without_the_key_leave_descriptors_to_the_worker_and_hosts_get_through(
    board: HostListener,
) -> None:
    Worker(board)
    before = len(os.listdir("/proc/self/fd"))
    strangers: list[socket.socket] = []
    try:
        for _ in range(400):
            strangers.append(socket.create_connection(board.address))
        # Half of the descriptors are this test's own ends.  Sooner than a handshake's time limit would end them.
        eventually(
            lambda: len(os.listdir("/proc/self/fd")) - before - len(strangers) <= MOST_STRANGERS + 1,
            "strangers to go",
            HANDSHAKE_SECONDS - 5,
        )

        with call(board.address, board.key, Connect(JOB)) as host:
            assert isinstance(host.recv(), Accepted)
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_caller_that_says_a_byte_now_and_then_is_given_no_more_time() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as stranger:
        called, _ = listener.accept()
        over = threading.Event()

        def drip() -> None:
            while not over.wait(0.05):
                stranger.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            with called, pytest.raises(TimeoutError):
                accept(called, b"key", seconds=0.5)
        finally:
            over.set()
            dripping.join()
