"""Garbage collection in the embedded lake: what nothing leads to goes, and nothing else, whoever works beside it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perago.errors import LakeNotFound, LakeRefused
from perago.lake.base import Merge, Upload
from perago.lake.local.blob_files import Files
from perago.lake.local.gc import Garbage, Keep, find_garbage, remove_garbage
from perago.lake.local.lake import LocalLake
from perago.lake.local.store import Store
from tests.support.worlds.lake_work import Work

SMALL, LARGE = b"small", b"x" * 100_000


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    lake = LocalLake(tmp_path / "lake")
    lake.create_repository("songs")
    yield lake
    assert lake.fsck() == []
    lake.close()


@pytest.fixture
def work(lake: LocalLake, tmp_path: Path) -> Work:
    return Work(lake, "songs", tmp_path / "files")


def collect(lake: LocalLake, *, before: float = 4e9, keep: Collection[str] = ()) -> Garbage:
    """Remove what is older than a time, which by default is far in the future."""
    found = lake.find_garbage(before=before, keep=keep)
    assert lake.remove_garbage(before=before, keep=keep) == found, "a dry run says what goes"
    assert not lake.find_garbage(before=before, keep=keep)
    return found


def objects_on_disk(tmp_path: Path) -> int:
    return sum(path.is_file() for path in (tmp_path / "lake" / "objects").rglob("*"))


def test_the_commits_and_objects_of_a_deleted_branch_go_and_those_it_shares_stay(
    lake: LocalLake, work: Work, tmp_path: Path
) -> None:
    work.commit("main", {"a": SMALL, "b": LARGE})
    lake.create_branch("songs", "dev", "main")
    gone = work.commit("dev", {"a": b"other", "c": LARGE[1:]})
    lake.drop_branch("songs", "dev")

    found = collect(lake)

    assert (found.commits, found.objects) == (1, 2)
    assert found.bytes > len(LARGE)
    with pytest.raises(LakeNotFound):
        lake.commit_at("songs", gone)
    assert work.contents("main") == {"a": SMALL, "b": LARGE}
    assert objects_on_disk(tmp_path) == 1


def test_every_commit_on_a_branch_or_a_tag_stays_with_its_history(lake: LocalLake, work: Work) -> None:
    old = work.commit("main", {"a": b"1"})
    work.commit("main", {"a": b"2"})
    lake.create_branch("songs", "dev", "main")
    tagged = work.commit("dev", {"a": b"3"})
    lake.create_tag("songs", "perago-replaced-x", tagged)
    lake.drop_branch("songs", "dev")

    assert not collect(lake)

    assert work.contents(old) == {"a": b"1"}
    assert work.contents(tagged) == {"a": b"3"}


def test_a_merged_branch_stays_in_the_history_of_the_merge(lake: LocalLake, work: Work) -> None:
    base = work.commit("main", {"a": b"1"})
    lake.create_branch("songs", "dev", "main")
    merged = work.commit("dev", {"a": b"2"})
    lake.merge("songs", Merge("dev", "main", base, "merge", {}, 30, squash=False))
    lake.drop_branch("songs", "dev")

    assert not collect(lake)
    assert lake.commit_at("songs", merged).parents == (base,)


def test_uncommitted_objects_stay(lake: LocalLake, work: Work) -> None:
    work.put("main", {"a": SMALL, "b": LARGE})
    assert not collect(lake)
    lake.commit("songs", "main", "late", {})
    assert work.contents("main") == {"a": SMALL, "b": LARGE}


def test_what_is_newer_than_the_limit_stays(lake: LocalLake, work: Work, tmp_path: Path) -> None:
    lake.create_branch("songs", "dev", "main")
    new = work.commit("dev", {"a": LARGE})
    lake.drop_branch("songs", "dev")

    assert not collect(lake, before=0)
    assert work.contents(new) == {"a": LARGE}
    assert collect(lake).objects == 1
    assert objects_on_disk(tmp_path) == 0


def test_commits_that_are_to_be_kept_stay_with_their_history(lake: LocalLake, work: Work) -> None:
    lake.create_branch("songs", "dev", "main")
    first = work.commit("dev", {"a": b"1"})
    second = work.commit("dev", {"a": b"2"})
    work.commit("dev", {"a": b"3"})
    lake.drop_branch("songs", "dev")

    assert collect(lake, keep=[second, "0" * 64]).commits == 1
    assert (work.contents(first), work.contents(second)) == ({"a": b"1"}, {"a": b"2"})


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_an_upload_whose_bytes_are_removed_before_it_refers_to_them_adds_them_again(
    lake: LocalLake, work: Work, tmp_path: Path, data: bytes
) -> None:
    other = LocalLake(tmp_path / "lake")
    removed = []

    def between(_files: int, _bytes: int) -> None:
        if not removed:
            removed.append(other.remove_garbage(before=4e9, keep=()).objects)

    lake.upload("songs", "main", [work.an_upload("a", data)], between)
    lake.create_repository("new", [work.an_upload("b", data[1:])], progress=between)

    assert removed == [1]
    lake.commit("songs", "main", "uploaded", {})
    assert work.contents("main") == {"a": data}
    other.close()


class Died(BaseException):
    pass


class DyingFiles(Files):
    """Files whose owner dies before the removal number `left`, or before it lists them."""

    def __init__(self, folder: Path, left: int) -> None:
        super().__init__(folder)
        self.left = left

    def older_than(self, since_ns: int) -> list[tuple[str, int]]:
        self._step()
        return super().older_than(since_ns)

    def remove(self, checksum: str) -> bool:
        self._step()
        return super().remove(checksum)

    def _step(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1


@pytest.mark.parametrize("steps", range(4))
def test_a_collection_that_dies_at_any_point_leaves_a_whole_lake_and_the_next_one_finishes(
    lake: LocalLake, work: Work, tmp_path: Path, steps: int
) -> None:
    work.commit("main", {"a": LARGE})
    lake.create_branch("songs", "dev", "main")
    work.commit("dev", {name: LARGE[number:] for number, name in enumerate("bcd", start=1)})
    lake.drop_branch("songs", "dev")
    folder = tmp_path / "lake"

    with pytest.raises(Died):
        remove_garbage(Store(folder / "lake.db"), DyingFiles(folder, steps), Keep(4 * 10**18))

    assert lake.fsck() == []
    left = find_garbage(Store(folder / "lake.db"), Files(folder), Keep(4 * 10**18))
    assert left.objects == 3 - max(0, steps - 1)
    collect(lake)
    assert work.contents("main") == {"a": LARGE}
    assert objects_on_disk(tmp_path) == 1


def test_collections_beside_uploads_commits_and_merges_lose_nothing(lake: LocalLake, tmp_path: Path) -> None:
    stop = threading.Event()

    def write(number: int) -> dict[str, bytes]:
        own = LocalLake(tmp_path / "lake")
        repository = f"writer-{number}"
        own.create_repository(repository)
        expected: dict[str, bytes] = {}
        for step in range(15):
            # The same bytes come and go, so that uploads meet objects that are about to be removed.
            data = {"small": f"{step % 3}".encode(), "large": bytes([step % 3]) * 50_000}
            files = []
            for name, content in data.items():
                source = tmp_path / f"{repository}-{name}"
                source.write_bytes(content)
                files.append(Upload(source, name, len(content), hashlib.sha256(content).hexdigest()))
            head = own.head(repository, "main").id
            own.create_branch(repository, f"side-{step}", head)
            own.upload(repository, f"side-{step}", files)
            own.commit(repository, f"side-{step}", "step", {})
            if step % 2:
                own.merge(repository, Merge(f"side-{step}", "main", head, "publish", {}, 60))
                expected = data
            own.drop_branch(repository, f"side-{step}")
        assert _contents(own, repository) == expected
        own.close()
        return expected

    def clean() -> int:
        own, rounds = LocalLake(tmp_path / "lake"), 0
        while not stop.is_set() or rounds == 0:
            own.remove_garbage(before=4e9, keep=())
            rounds += 1
        own.close()
        return rounds

    with ThreadPoolExecutor(4) as pool:
        cleaner = pool.submit(clean)
        try:
            expected = list(pool.map(write, range(3)))
        finally:
            stop.set()
        assert cleaner.result() > 0

    for number, data in enumerate(expected):
        assert _contents(lake, f"writer-{number}") == data


def _contents(lake: LocalLake, repository: str) -> dict[str, bytes]:
    return {
        entry.path: b"".join(lake.read(repository, "main", entry.path))
        for entry in lake.list(repository, "main", "")
    }


def test_the_database_gives_its_space_back(lake: LocalLake, work: Work, tmp_path: Path) -> None:
    lake.create_branch("songs", "dev", "main")
    work.commit("dev", {f"file-{number}": bytes([number]) * 16_000 for number in range(100)})
    lake.drop_branch("songs", "dev")
    size: Callable[[], int] = lambda: (tmp_path / "lake" / "lake.db").stat().st_size  # noqa: E731
    lake.close()
    before = size()

    collect(lake)

    lake.close()
    assert size() < before - 1_000_000


def test_a_lake_that_is_read_while_it_is_cleaned_shows_what_it_had(lake: LocalLake, work: Work) -> None:
    work.commit("main", {f"file-{number:03}": b"%d" % number for number in range(300)})
    listing = lake.list("songs", "main", "")
    first = next(listing)
    collect(lake)
    assert [first.path, *(entry.path for entry in listing)] == [f"file-{number:03}" for number in range(300)]


def test_a_branch_cannot_be_made_at_a_commit_that_was_removed(lake: LocalLake, work: Work) -> None:
    lake.create_branch("songs", "dev", "main")
    gone = work.commit("dev", {"a": SMALL})
    lake.drop_branch("songs", "dev")
    collect(lake)
    with pytest.raises((LakeNotFound, LakeRefused)):
        lake.create_branch("songs", "again", gone)
