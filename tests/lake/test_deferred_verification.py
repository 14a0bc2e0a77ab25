"""The verdicts on what downloads leave: all of them, or the first bad one, and nothing held afterwards."""

from __future__ import annotations

import threading

import pytest

from perago.errors import LakeError
from perago.lake.deferred_verification import CheckCancelled, Verification, VerificationCancelled
from tests.support.faults.deferred_downloads import Verdict


def test_without_anything_left_there_is_nothing_to_wait_for() -> None:
    assert Verification().wait() == {}


def test_all_verdicts_are_in_when_the_wait_is_over() -> None:
    left = [Verdict(f"f{number}") for number in range(20)]
    with Verification() as verification:
        verification.begin(left)
        assert verification.wait() == {}
    assert all(one.verified for one in left)


def test_checksums_that_only_the_bytes_tell_come_with_the_verdict() -> None:
    verification = Verification()
    verification.begin([Verdict("a"), Verdict("b", checksum="of b")])
    verification.begin([Verdict("c", checksum="of c")])
    assert verification.wait() == {"b": "of b", "c": "of c"}


def test_a_bad_verdict_is_raised_and_the_others_are_not_waited_for() -> None:
    endless, bad = Endless(), Verdict("bad", error=LakeError("bad bytes"))
    verification = Verification(threads=2)
    verification.begin([endless, bad, Verdict("later")])
    with pytest.raises(LakeError, match="bad bytes"):
        verification.wait()
    assert isinstance(endless.stopped_by, VerificationCancelled)


def test_held_objects_are_released_once_at_the_end() -> None:
    left = [Verdict("a"), Verdict("bad", error=LakeError("no")), Verdict("b")]
    verification = Verification(threads=1)
    verification.begin(left)
    left[2].done.wait(10)
    assert [one.drops for one in left] == [0, 0, 0]
    with pytest.raises(LakeError):
        verification.wait()
    verification.close()
    assert [one.drops for one in left] == [1, 1, 1]


def test_closing_stops_what_is_under_way_and_lets_go_of_what_never_began() -> None:
    endless, waiting = Endless(), Verdict("waiting")
    with Verification(threads=1) as verification:
        verification.begin([endless, waiting])
        endless.began.wait(10)
    assert isinstance(endless.stopped_by, VerificationCancelled)
    assert (endless.drops, waiting.drops) == (1, 1)


def test_a_verification_that_was_given_up_has_no_good_verdict() -> None:
    verification = Verification(threads=1)
    endless = Endless()
    verification.begin([endless])
    verification.close()
    with pytest.raises(VerificationCancelled):
        verification.wait()


class Endless(Verdict):
    """A verification that ends only if it is stopped."""

    def __init__(self) -> None:
        super().__init__("endless")
        self.began = threading.Event()
        self.stopped_by: LakeError | None = None

    def verify(self, check_cancelled: CheckCancelled) -> str | None:
        self.began.set()
        try:
            while True:
                check_cancelled()
        except LakeError as error:
            self.stopped_by = error
            raise
