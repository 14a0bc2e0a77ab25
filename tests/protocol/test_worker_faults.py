"""Which failures are the worker's own."""

from __future__ import annotations

import errno

import pytest

from perago.errors import (
    LakeError,
    LakeForbidden,
    LakeNotFound,
    LakeUnauthenticated,
    LakeUnavailable,
    PublishFenceError,
    TaskFailed,
    TaskInputError,
)
from perago.protocol.worker_faults import WorkerFault, worker_fault


def os_error(number: int) -> OSError:
    return OSError(number, "said by the system")


def made_from(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


TABLE: list[tuple[Exception, str, WorkerFault | None]] = [
    (LakeUnauthenticated("who?"), "input", "keys"),
    (LakeUnauthenticated("who?"), "stage", "keys"),
    (LakeUnauthenticated("who?"), "body", None),
    (LakeUnavailable("away"), "input", "lake"),
    (LakeUnavailable("away"), "download", None),
    (LakeForbidden("not this repository"), "input", None),
    (LakeNotFound("no such repository"), "input", None),
    (os_error(errno.ENOSPC), "workdir", "disk"),
    (os_error(errno.ENOSPC), "body", "disk"),
    (os_error(errno.EDQUOT), "download", "disk"),
    (os_error(errno.EROFS), "workdir", "disk"),
    (os_error(errno.EMFILE), "download", "descriptors"),
    (os_error(errno.ENFILE), "workdir", "descriptors"),
    (os_error(errno.EMFILE), "body", None),
    (os_error(errno.EACCES), "workdir", None),
    (OSError("no number"), "workdir", None),
    (made_from(LakeError("cannot write a.csv"), os_error(errno.ENOSPC)), "download", "disk"),
    (made_from(LakeUnavailable("no connection"), os_error(errno.EMFILE)), "input", "descriptors"),
    (made_from(TaskFailed("my own disk is full"), os_error(errno.ENOSPC)), "body", None),
    (TaskInputError("wrong"), "input", None),
    (PublishFenceError("moved"), "publish", None),
    (ValueError("a body's own"), "body", None),
]


@pytest.mark.parametrize(("error", "step", "expected"), TABLE)
def test_an_error_is_the_workers_own_by_what_it_is_and_where_it_came_up(
    error: Exception, step: str, expected: WorkerFault | None
) -> None:
    assert worker_fault(error, step) == expected


def fail_over_a_full_disk(*, hidden: bool) -> None:
    """Raise a plain error while a full disk is put away; with or without saying so."""
    try:
        raise os_error(errno.ENOSPC)
    except OSError:
        if hidden:
            raise ValueError("over it") from None
        raise ValueError("over it")  # noqa: B904 - on purpose


def test_an_error_counts_by_what_it_came_up_in_the_middle_of() -> None:
    with pytest.raises(ValueError, match="over it") as caught:
        fail_over_a_full_disk(hidden=False)

    assert worker_fault(caught.value, "workdir") == "disk"


def test_an_error_whose_origin_was_hidden_counts_by_itself() -> None:
    with pytest.raises(ValueError, match="over it") as caught:
        fail_over_a_full_disk(hidden=True)

    assert worker_fault(caught.value, "workdir") is None


def test_chained_errors_are_each_examined_once() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one

    assert worker_fault(one, "workdir") is None
