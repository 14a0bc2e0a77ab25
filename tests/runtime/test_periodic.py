from __future__ import annotations

import threading

from perago.runtime.periodic import looking


def test_a_periodic_call_repeats_until_the_block_ends_and_its_thread_ends_with_it() -> None:
    twice = threading.Event()
    looks: list[str] = []

    def look() -> bool:
        looks.append(threading.current_thread().name)
        if len(looks) > 1:
            twice.set()
        return True

    with looking(look, every=0.001, name="looking-here"):
        assert twice.wait(10)

    assert set(looks) == {"looking-here"}
    assert "looking-here" not in [thread.name for thread in threading.enumerate()]


def test_a_periodic_call_stops_once_it_returns_false() -> None:
    looks: list[threading.Thread] = []

    def look() -> bool:
        looks.append(threading.current_thread())
        return False

    with looking(look, every=0.0, name="looking-once"):
        [thread] = [thread for thread in threading.enumerate() if thread.name == "looking-once"] or looks
        thread.join(10)
        assert not thread.is_alive()

    assert len(looks) == 1
