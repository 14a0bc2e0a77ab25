from __future__ import annotations

from perago.runtime.worker.inbox import Inbox, Message, StopRequested, WorkerProbed


def test_messages_are_handled_in_the_order_in_which_they_were_posted() -> None:
    inbox, handled = Inbox(), list[Message]()
    messages = [StopRequested("SIGTERM"), WorkerProbed("no room"), StopRequested("SIGINT"), WorkerProbed()]
    for message in messages:
        inbox.post(message)

    inbox.handle_all(handled.append, timeout=0.0)

    assert handled == messages


def test_a_message_posted_while_another_is_handled_is_handled_in_the_same_round() -> None:
    inbox, handled = Inbox(), list[Message]()

    def handle(message: Message) -> None:
        handled.append(message)
        if isinstance(message, StopRequested):
            inbox.post(WorkerProbed())

    inbox.post(StopRequested())
    inbox.handle_all(handle, timeout=0.0)

    assert handled == [StopRequested(), WorkerProbed()]


def test_a_message_is_handled_once() -> None:
    inbox, handled = Inbox(), list[Message]()
    inbox.post(StopRequested())

    inbox.handle_all(handled.append, timeout=0.0)
    inbox.handle_all(handled.append, timeout=0.0)

    assert handled == [StopRequested()]
