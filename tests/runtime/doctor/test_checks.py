"""The checks of `perago doctor` as functions: values in, findings out."""

from __future__ import annotations

import threading
from email.utils import formatdate
from pathlib import Path

import pytest

from perago.runtime.doctor.finding import Finding, call_with_time_limit
from perago.runtime.doctor.local_checks import (
    LOW_SPACE_BYTES,
    MIN_SPACE_BYTES,
    Skew,
    check_clock,
    check_file_times,
    check_java,
    free_space_finding,
    read_skew,
)
from perago.runtime.doctor.server_checks import check_transfer
from perago.runtime.doctor.settings_checks import shown_size
from perago.runtime.observe.sanitize import Masker
from perago.settings import TransferMode
from tests.support.faults.proxy import fault_proxy
from tests.support.servers.scripted_server import scripted

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (LOW_SPACE_BYTES, "ok"),
        (LOW_SPACE_BYTES - 1, "warn"),
        (MIN_SPACE_BYTES, "warn"),
        (MIN_SPACE_BYTES - 1, "fail"),
    ],
)
def test_little_room_is_a_warning_and_hardly_any_is_broken(free: int, level: str) -> None:
    finding = free_space_finding("disk", free, Path("/somewhere"), "name another folder")

    assert finding.level == level
    assert bool(finding.remedy) == (level != "ok")


@pytest.mark.parametrize(
    ("seconds", "signs", "level"),
    [
        (0.0, True, "ok"),
        (-4.9, True, "ok"),
        (5.0, True, "warn"),
        (-899.0, True, "warn"),
        (900.0, True, "fail"),
        (-900.0, True, "fail"),
        (9000.0, False, "warn"),
    ],
)
def test_a_clock_is_judged_by_what_its_difference_breaks(seconds: float, signs: bool, level: str) -> None:
    assert check_clock("lakeFS", Skew(seconds), signs=signs).level == level


@pytest.mark.parametrize(
    ("mode", "offered", "level", "says"),
    [
        ("auto", True, "ok", "bytes go straight"),
        ("auto", False, "ok", "not supported (gs store); bytes go through lakeFS's S3 gateway"),
        ("gateway", True, "ok", "PERAGO_TRANSFER=gateway sends bytes through lakeFS all the same"),
        ("gateway", False, "ok", "bytes go through lakeFS's S3 gateway"),
        ("presigned", True, "ok", "bytes go straight"),
        ("presigned", False, "fail", "PERAGO_TRANSFER=presigned moves no bytes without it"),
    ],
)
def test_the_way_of_bytes_is_told_by_the_setting_and_by_what_the_server_offers(
    mode: TransferMode, offered: bool, level: str, says: str
) -> None:
    finding = check_transfer(mode, "gs", offered=offered)

    assert finding.level == level
    assert says in finding.says
    assert bool(finding.remedy) == (level != "ok")


def test_a_server_that_tells_no_time_is_no_failure() -> None:
    assert check_clock("lakeFS", None, signs=True).level == "skip"
    assert read_skew("http://127.0.0.1:9") is None
    assert read_skew("no address") is None


@pytest.mark.parametrize("status", [200, 302, 401, 500])
def test_any_answer_tells_the_time(status: int) -> None:
    with (
        scripted(lambda _: (status, "x")) as server,
        fault_proxy(server.url.removesuffix("/api")) as proxy,
    ):
        near = read_skew(proxy.url)
        proxy.date_shift = 7200.0
        ahead = read_skew(proxy.url)

    assert near is not None
    assert abs(near.seconds) < 60
    assert ahead is not None
    assert 7100 < ahead.seconds < 7300


def test_whole_seconds_and_the_way_of_the_answer_are_no_difference() -> None:
    with scripted(lambda _: (200, "x")) as server:
        said = read_skew(server.url, clock=lambda: NOW)
        assert said is not None
        real = said.seconds + NOW
        for ours in (real, real + 0.5, real + 0.999):
            again = read_skew(server.url, clock=lambda ours=ours: ours)  # type: ignore[misc]
            assert again is not None
            assert abs(again.seconds) < 60, formatdate(ours)


def test_a_check_that_takes_too_long_is_given_up() -> None:
    over = threading.Event()
    try:
        assert call_with_time_limit(0.01, lambda: over.wait() and "late", "no answer") == "no answer"
    finally:
        over.set()
    assert call_with_time_limit(60, lambda: "in time", "no answer") == "in time"
    with pytest.raises(ZeroDivisionError):
        call_with_time_limit(60, lambda: 1 / 0, 0.0)


def test_without_spark_a_missing_java_is_nothing_to_mend(tmp_path: Path) -> None:
    finding = check_java({"PATH": str(tmp_path)}, needed=False)

    assert (finding.level, finding.remedy) == ("ok", "")


def test_a_finding_is_one_line_without_secrets() -> None:
    finding = Finding("lakeFS", "fail", "it said:\n  no hunter2\r\n", "ask hunter2").masked(
        Masker(["hunter2"])
    )

    assert (finding.says, finding.remedy) == ("it said: no ***", "ask ***")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (10 * 1024**3, "10GB"),
        (1.5 * 1024**2, "1.5MB"),
        (5 * 1024**4, "5TB"),
    ],
)
def test_sizes_are_shown_in_the_units_that_settings_take(size: float, shown: str) -> None:
    assert shown_size(size) == shown


def test_a_file_system_that_does_not_show_writes_through_maps_is_told(on_disk: Path) -> None:
    assert check_file_times(on_disk / "not there yet").level == "ok"
    if Path("/dev/shm").is_dir():
        finding = check_file_times(Path("/dev/shm/not there yet"))
        assert (finding.level, "PERAGO_WORKSPACE_ROOT" in finding.remedy) == ("warn", True)
        assert "are hashed" in finding.says
