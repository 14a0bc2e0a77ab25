"""Pages of folders and of differences, and parts of objects, as every lake gives them.  No test here names a backend."""

from __future__ import annotations

import pytest

from perago.errors import LakeNotFound
from perago.lake.base import Lake
from tests.support.worlds.lake_work import Work


class TestFolder:
    OBJECTS = ("a", "a-b", "a/b", "a/b/c", "a/d/e", "a/d/f", "a0", "é/x", "z")

    def rows(
        self, lake: Lake, work: Work, prefix: str, *, after: str = "", limit: int = 100
    ) -> tuple[list[tuple[str, int | None]], bool]:
        head = lake.head(work.repository, "main").id
        page = lake.folder(work.repository, head, prefix, after=after, limit=limit)
        return [(row.path, row.size) for row in page.rows], page.more

    def test_objects_and_folders_come_in_the_order_of_a_listing(self, lake: Lake, work: Work) -> None:
        work.commit("main", dict.fromkeys(self.OBJECTS, b"xy"))
        expected = [("a", 2), ("a-b", 2), ("a/", None), ("a0", 2), ("z", 2), ("é/", None)]
        assert self.rows(lake, work, "") == (expected, False)
        assert self.rows(lake, work, "a/") == ([("a/b", 2), ("a/b/", None), ("a/d/", None)], False)
        assert self.rows(lake, work, "a/d/") == ([("a/d/e", 2), ("a/d/f", 2)], False)

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_page_by_page_every_row_comes_once(self, lake: Lake, work: Work, limit: int) -> None:
        work.commit("main", dict.fromkeys(self.OBJECTS, b"xy"))
        found, after, more = list[tuple[str, int | None]](), "", True
        while more:
            rows, more = self.rows(lake, work, "", after=after, limit=limit)
            assert len(rows) == limit or not more
            found += rows
            after = rows[-1][0]
        assert found == self.rows(lake, work, "")[0]

    def test_a_folder_that_holds_nothing_has_an_empty_page(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a/b": b"x"})
        assert self.rows(lake, work, "b/") == ([], False)

    def test_more_than_the_server_gives_at_once_is_one_page(self, lake: Lake, work: Work) -> None:
        names = [f"t/{number:04}" for number in range(1100)]
        work.commit("main", dict.fromkeys(names, b""))
        rows, more = self.rows(lake, work, "t/", limit=1050)
        assert ([path for path, _ in rows], more) == (names[:1050], True)
        assert self.rows(lake, work, "t/", after=names[1049], limit=1050)[0] == [
            (name, 0) for name in names[1050:]
        ]

    def test_a_commit_that_is_not_there_is_not_found(self, lake: Lake, work: Work) -> None:
        with pytest.raises(LakeNotFound):
            lake.folder(work.repository, "f" * 64, "", limit=1)


class TestChanges:
    def test_added_changed_and_removed_objects_are_listed_with_their_sizes(
        self, lake: Lake, work: Work
    ) -> None:
        left = work.commit("main", {"t/a": b"0", "t/b": b"0", "t/keep": b"0", "u/a": b"0"})
        right = work.edit("main", {"t/a": None, "t/b": b"11", "t/c": b"111", "u/a": b"1"})
        page = lake.changes(work.repository, left, right, prefix="t/", limit=10)
        assert [(one.path, one.kind, one.size) for one in page.rows] == [
            ("t/a", "removed", None),
            ("t/b", "changed", 2),
            ("t/c", "added", 3),
        ]
        assert not page.more
        back = lake.changes(work.repository, right, left, prefix="t/", limit=10)
        assert [one.kind for one in back.rows] == ["added", "changed", "removed"]

    def test_page_by_page_every_difference_comes_once(self, lake: Lake, work: Work) -> None:
        left = work.commit("main", {"t/a": b"0"})
        names = [f"t/{number}" for number in range(7)]
        right = work.commit("main", dict.fromkeys(names, b"1"))
        found, after, more = list[str](), "", True
        while more:
            page = lake.changes(work.repository, left, right, after=after, limit=3)
            found += [one.path for one in page.rows]
            after, more = found[-1], page.more
        assert found == names

    def test_two_equal_commits_differ_in_nothing(self, lake: Lake, work: Work) -> None:
        head = work.commit("main", {"a": b"0"})
        page = lake.changes(work.repository, head, head, limit=5)
        assert (list(page.rows), page.more) == ([], False)


class TestRanges:
    @pytest.mark.parametrize("size", [100, 100_000])
    def test_a_part_of_an_object_is_read_alone(self, lake: Lake, work: Work, size: int) -> None:
        data = bytes(number % 251 for number in range(size))
        head = work.commit("main", {"a/b c%é": data, "plain": data})
        for path in ("a/b c%é", "plain"):
            assert lake.read_range(work.repository, head, path, 0, 10) == data[:10]
            assert lake.read_range(work.repository, head, path, 17, 30) == data[17:47]
            assert lake.read_range(work.repository, head, path, size - 5, 50) == data[-5:]

    def test_an_object_that_is_not_there_is_not_found(self, lake: Lake, work: Work) -> None:
        head = work.commit("main", {"a": b"0"})
        with pytest.raises(LakeNotFound):
            lake.read_range(work.repository, head, "b", 0, 1)
