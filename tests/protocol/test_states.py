"""File states in little memory come back as they were put in."""

from __future__ import annotations

import pytest

from perago.protocol.changes import EditedStates, FileStat, FileState, FileStates, changes_between

MD5, SHA = "d41d8cd98f00b204e9800998ecf8427e", "e3" * 32
STAT = FileStat(7, 1_700_000_000_000_000_001, -5, 2**64 - 1)


def states(**files: FileState) -> FileStates:
    """States by path."""
    found = FileStates()
    for path, state in files.items():
        found.put(path, state)
    return found


@pytest.mark.parametrize("size", [0, 7, 2**62])
@pytest.mark.parametrize("checksum", [None, "", MD5, SHA, MD5.upper(), "abc", "12 34", "a-multipart-3", "é"])
def test_a_state_comes_back_as_it_was(size: int, checksum: str | None) -> None:
    assert states(a=FileState(size, checksum)) == {"a": FileState(size, checksum)}


def test_a_stat_comes_back_where_one_was_kept() -> None:
    found = states(listed=FileState(7, MD5))
    found.put("there", FileState(7, MD5), STAT)
    assert found.stat("there") == STAT
    assert found.stat("listed") is None
    assert found.stat("nowhere") is None
    assert found["there"] == found["listed"]


def test_the_last_state_of_a_path_counts() -> None:
    found = states(a=FileState(1, MD5), b=FileState(2, None))
    found.put("a", FileState(3, SHA))
    assert list(found.items()) == [("a", FileState(3, SHA)), ("b", FileState(2, None))]
    assert (len(found), "a" in found, "c" in found) == (2, True, False)


def test_a_path_that_is_not_there_is_missing() -> None:
    with pytest.raises(KeyError):
        states()["a"]


class TestEdited:
    BASE = states(
        kept=FileState(1, MD5), touched=FileState(1, MD5), new_bytes=FileState(1, MD5), gone=FileState(1, MD5)
    )
    READ = states(touched=FileState(1, MD5), new_bytes=FileState(1, SHA), added=FileState(2, SHA))
    EDITED = EditedStates(BASE, READ, {"gone"})

    def test_it_is_what_the_folder_holds(self) -> None:
        expected = {
            "kept": FileState(1, MD5),
            "touched": FileState(1, MD5),
            "new_bytes": FileState(1, SHA),
            "added": FileState(2, SHA),
        }
        assert expected == self.EDITED
        assert (len(self.EDITED), list(self.EDITED)) == (4, list(expected))
        assert [path in self.EDITED for path in ("kept", "added", "gone", "nowhere")] == [
            True,
            True,
            False,
            False,
        ]

    @pytest.mark.parametrize("path", ["gone", "nowhere"])
    def test_what_is_gone_is_missing(self, path: str) -> None:
        with pytest.raises(KeyError):
            self.EDITED[path]

    def test_its_changes_are_those_of_a_whole_comparison(self) -> None:
        assert self.EDITED.changes() == changes_between(self.BASE, self.EDITED)
        assert self.EDITED.changes().put == ("new_bytes", "added")
        assert self.EDITED.changes().delete == ("gone",)

    def test_a_file_that_comes_back_is_not_gone(self) -> None:
        base = states(a=FileState(1, None))
        assert EditedStates(base, states(a=FileState(1, MD5)), set()).changes().put == ("a",)
