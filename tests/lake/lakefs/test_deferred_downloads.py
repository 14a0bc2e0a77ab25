"""Objects whose files are there before their MD5 is known: every verdict, whatever the body does to its files meanwhile."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perago.errors import LakeError, LakeUnavailable
from tests.support.faults.deferred_downloads import LARGE, DeferringDownloads, ScriptedSource, an_entry
from tests.support.worlds.cache_fixture import key_of

DATA = bytes(range(251)) * (LARGE // 251 + 10)
DAMAGED = b"?" + DATA[1:]
MD5 = hashlib.md5(DATA).hexdigest()
OTHER_MD5 = "0" * 32
NAME = key_of(DATA).name


def write_into(file: Path) -> None:
    with open(file, "r+b") as body:
        body.seek(1_000_000)
        body.write(b"the body was here")


def cut(file: Path) -> None:
    os.truncate(file, 10)


def append(file: Path) -> None:
    with open(file, "ab") as body:
        body.write(b"more")


def rename(file: Path) -> None:
    file.rename(file.with_name("renamed"))


def replace(file: Path) -> None:
    file.unlink()
    file.write_bytes(b"another file")


@pytest.fixture
def deferring(tmp_path: Path) -> DeferringDownloads:
    return DeferringDownloads(tmp_path)


class TestGoodVerdicts:
    def test_the_file_is_there_first_and_the_verdict_is_good(self, deferring: DeferringDownloads) -> None:
        source = ScriptedSource(DATA)
        [file], verification = deferring.download(source, an_entry(DATA))

        assert file.read_bytes() == DATA
        assert len(verification.left) == 1
        assert verification.wait() == {}
        assert (source.count, deferring.cached_names()) == (1, [NAME])

    @pytest.mark.parametrize("act", [append, rename, replace, os.unlink], ids=lambda act: act.__name__)
    def test_changes_of_the_body_do_not_affect_the_verdict(
        self, deferring: DeferringDownloads, act: Callable[[Path], None]
    ) -> None:
        source = ScriptedSource(DATA)
        [file], verification = deferring.download(source, an_entry(DATA))
        act(file)
        assert verification.wait() == {}
        assert source.count == 1

    @pytest.mark.parametrize("act", [write_into, cut], ids=lambda act: act.__name__)
    def test_a_body_that_writes_over_its_input_costs_a_second_transfer_and_is_no_damage(
        self, deferring: DeferringDownloads, act: Callable[[Path], None]
    ) -> None:
        source = ScriptedSource(DATA)
        [file], verification = deferring.download(source, an_entry(DATA))
        act(file)
        assert verification.wait() == {}
        assert source.count == 2

        [again], verification = deferring.download(ScriptedSource(DATA), an_entry(DATA))
        verification.wait()
        assert again.read_bytes() == DATA

    def test_a_program_among_the_files_can_be_run_before_the_verdict(
        self, deferring: DeferringDownloads
    ) -> None:
        program = b"#!/bin/sh\nexit 7\n" + b"#" * LARGE
        [file], verification = deferring.download(ScriptedSource(program), an_entry(program))
        file.chmod(0o700)
        assert subprocess.run([file], check=False).returncode == 7
        verification.wait()

    def test_no_descriptor_and_no_part_file_stays(self, deferring: DeferringDownloads) -> None:
        files, verification = deferring.download(
            ScriptedSource(DATA), *[an_entry(DATA, path=p) for p in "abc"]
        )
        assert deferring.open_files()
        verification.wait()
        assert deferring.open_files() == []
        assert sorted((deferring.folder / "out").iterdir()) == files

    def test_a_download_that_fails_leaves_no_descriptor_either(self, deferring: DeferringDownloads) -> None:
        source = ScriptedSource(DATA, LakeUnavailable("gone"))
        with pytest.raises(LakeUnavailable, match="gone"):
            deferring.download(source, an_entry(DATA, path="a"), an_entry(DAMAGED, path="b"))
        assert deferring.open_files() == []


class TestDamaged:
    def test_bytes_damaged_on_their_way_are_told_at_the_verdict_and_are_not_in_the_cache(
        self, deferring: DeferringDownloads
    ) -> None:
        _, verification = deferring.download(ScriptedSource(DAMAGED, DATA), an_entry(DATA))
        with pytest.raises(LakeError, match=r"'some/path'.*damaged on its way, try again"):
            verification.wait()
        assert deferring.cached_names() == []
        assert deferring.open_files() == []

    @pytest.mark.parametrize("act", [write_into, cut, replace], ids=lambda act: act.__name__)
    def test_wrong_bytes_are_found_whatever_the_body_does_to_them(
        self, deferring: DeferringDownloads, act: Callable[[Path], None]
    ) -> None:
        [file], verification = deferring.download(ScriptedSource(DAMAGED, DATA), an_entry(DATA))
        act(file)
        with pytest.raises(LakeError, match="damaged on its way"):
            verification.wait()

    def test_two_transfers_that_differ_and_fit_nothing_are_refused(
        self, deferring: DeferringDownloads
    ) -> None:
        _, verification = deferring.download(ScriptedSource(DAMAGED, DATA), an_entry(DATA, OTHER_MD5))
        with pytest.raises(LakeError, match="two transfers gave different bytes"):
            verification.wait()
        assert deferring.cached_names() == []

    def test_a_second_transfer_that_fails_is_an_error(self, deferring: DeferringDownloads) -> None:
        source = ScriptedSource(DAMAGED, LakeUnavailable("no answer"))
        _, verification = deferring.download(source, an_entry(DATA))
        with pytest.raises(LakeUnavailable, match="no answer"):
            verification.wait()
        assert deferring.cached_names() == []

    def test_a_process_that_dies_before_the_verdict_leaves_an_object_that_is_hashed(
        self, deferring: DeferringDownloads
    ) -> None:
        _, verification = deferring.download(ScriptedSource(DAMAGED), an_entry(DATA))
        for one in verification.left:
            one.drop()
        assert deferring.cached_names() == [NAME]

        source = ScriptedSource(DATA)
        [file], verification = deferring.download(source, an_entry(DATA))
        verification.wait()
        assert (file.read_bytes(), source.count) == (DATA, 1)


class TestOtherChecksums:
    def test_an_object_whose_checksum_is_no_hash_passes_if_two_transfers_agree_and_is_cached_by_its_md5(
        self, deferring: DeferringDownloads, caplog: pytest.LogCaptureFixture
    ) -> None:
        source, entry = ScriptedSource(DATA), an_entry(DATA, OTHER_MD5)
        with caplog.at_level(logging.WARNING):
            _, verification = deferring.download(source, entry)
            assert verification.wait() == {"some/path": MD5}
        assert "is no MD5" in caplog.text
        assert (source.count, deferring.cached_names()) == (2, [NAME])

        [file], verification = deferring.download(source, entry)
        assert verification.wait() == {}
        assert (file.read_bytes(), source.count) == (DATA, 2)

    def test_an_object_of_usual_parts_is_verified_without_a_second_transfer_and_is_cached_by_its_md5(
        self, deferring: DeferringDownloads
    ) -> None:
        data = DATA * 3
        size = 8 * 1024 * 1024
        parts = [hashlib.md5(data[at : at + size]).digest() for at in range(0, len(data), size)]
        source = ScriptedSource(data)
        entry = an_entry(data, hashlib.md5(b"".join(parts)).hexdigest())
        _, verification = deferring.download(source, entry)
        assert verification.wait() == {"some/path": hashlib.md5(data).hexdigest()}

        deferring.download(source, entry)[1].wait()
        assert source.count == 1
        assert deferring.cached_names() == [key_of(data).name]

    def test_a_checksum_with_a_number_of_parts_is_not_deferred(self, deferring: DeferringDownloads) -> None:
        entry = an_entry(DATA, hashlib.md5(hashlib.md5(DATA).digest()).hexdigest() + "-1")
        _, verification = deferring.download(ScriptedSource(DATA), entry)
        assert verification.left == []


class TestDeferring:
    def test_nothing_is_deferred_on_a_slow_connection(self, tmp_path: Path) -> None:
        deferring = DeferringDownloads(tmp_path, hashed_below=10**12)
        source = ScriptedSource(DAMAGED, DATA)
        [file], verification = deferring.download(source, an_entry(DATA))
        assert verification.left == []
        assert (file.read_bytes(), source.count) == (DATA, 2)

    def test_small_objects_are_not(self, deferring: DeferringDownloads) -> None:
        _, verification = deferring.download(ScriptedSource(b"small"), an_entry(b"small"))
        assert verification.left == []

    def test_no_more_objects_are_deferred_than_descriptors_can_be_spared(
        self, deferring: DeferringDownloads
    ) -> None:
        entries = [an_entry(DATA, path=f"f{number}") for number in range(5)]
        files, verification = deferring.download(ScriptedSource(DATA), *entries, most=3)
        assert [one.path for one in verification.left] == ["f0", "f1", "f2"]
        verification.wait()
        assert [file.read_bytes() == DATA for file in files] == [True] * 5


class TestCopies:
    """Copies out of the cache, which are checked later in the same way."""

    @pytest.fixture
    def filled(self, deferring: DeferringDownloads) -> DeferringDownloads:
        _, verification = deferring.download(ScriptedSource(DATA), an_entry(DATA))
        verification.wait()
        return deferring

    def cached(self, deferring: DeferringDownloads) -> Path:
        return deferring.folder / f"cache/objects/{MD5[:2]}/{NAME}"

    def damage(self, deferring: DeferringDownloads) -> None:
        """Another byte, and nothing to tell it by."""
        before = self.cached(deferring).stat()
        with open(self.cached(deferring), "r+b") as file:
            file.write(b"?")
        os.utime(self.cached(deferring), ns=(before.st_atime_ns, before.st_mtime_ns))

    def test_a_good_copy_passes(self, filled: DeferringDownloads) -> None:
        source = ScriptedSource(DATA)
        [file], verification = filled.download(source, an_entry(DATA))
        assert len(verification.left) == 1
        assert verification.wait() == {}
        assert (file.read_bytes(), source.count) == (DATA, 0)
        assert filled.open_files() == []

    @pytest.mark.parametrize("act", [write_into, cut, append, rename, replace], ids=lambda act: act.__name__)
    def test_the_body_may_do_anything_to_its_copy(
        self, filled: DeferringDownloads, act: Callable[[Path], None]
    ) -> None:
        [file], verification = filled.download(ScriptedSource(DATA), an_entry(DATA))
        act(file)
        assert verification.wait() == {}
        assert filled.cached_names() == [NAME]

    def test_a_damaged_copy_is_reported_at_the_verdict_and_fetched_again_next_time(
        self, filled: DeferringDownloads
    ) -> None:
        self.damage(filled)
        source = ScriptedSource(DATA)
        _, verification = filled.download(source, an_entry(DATA))
        assert len(verification.left) == 1
        with pytest.raises(LakeError, match=r"'some/path' was damaged in the cache.*try again"):
            verification.wait()
        assert filled.cached_names() == []

        [file], verification = filled.download(source, an_entry(DATA))
        verification.wait()
        assert (file.read_bytes(), source.count) == (DATA, 1)

    def test_a_body_of_another_attempt_that_writes_into_the_cached_object_is_no_damage(
        self, filled: DeferringDownloads
    ) -> None:
        _, verification = filled.download(ScriptedSource(DATA), an_entry(DATA))
        write_into(self.cached(filled))
        assert verification.wait() == {}

    def test_a_damaged_copy_is_reported_even_if_the_cached_object_was_repaired_meanwhile(
        self, filled: DeferringDownloads
    ) -> None:
        self.damage(filled)
        _, verification = filled.download(ScriptedSource(DATA), an_entry(DATA))
        self.cached(filled).write_bytes(DATA)
        with pytest.raises(LakeError, match="damaged in the cache"):
            verification.wait()

    def test_an_object_that_was_written_into_before_is_hashed_at_once(
        self, filled: DeferringDownloads
    ) -> None:
        write_into(self.cached(filled))
        source = ScriptedSource(DATA)
        [file], verification = filled.download(source, an_entry(DATA))
        verification.wait()
        assert (file.read_bytes(), source.count) == (DATA, 1)
