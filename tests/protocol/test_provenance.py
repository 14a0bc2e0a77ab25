"""The code and the environment in commits, and the list of distributions in the task log."""

from __future__ import annotations

import pytest

from perago.protocol.provenance import (
    Provenance,
    in_common,
    is_packages_line,
    packages_digest,
    packages_lines,
    read_packages,
    short_code,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MANY = tuple(f"package-{number:04}==1.{number}" for number in range(1000))


@pytest.mark.parametrize(
    ("code", "short"),
    [
        (COMMIT, "0123456789ab"),
        (f"{COMMIT}+dirty", "0123456789ab+dirty"),
        ("songs==1.2.0", "songs==1.2.0"),
        ("sha256:0123456789ab", "sha256:0123456789ab"),
        ("", ""),
    ],
)
def test_a_git_commit_is_shortened(code: str, short: str) -> None:
    assert short_code(code) == short


def test_a_commit_says_what_is_known_and_no_more() -> None:
    known = Provenance(code=COMMIT, runtime="perago 1, python 3")

    assert known.metadata() == {"perago.code": COMMIT, "perago.runtime": "perago 1, python 3"}
    assert Provenance.of({**known.metadata(), "perago.fence": "hard"}) == known
    assert known.short == "0123456789ab, perago 1, python 3"
    assert Provenance().short == ""


def test_a_run_says_what_its_steps_have_in_common() -> None:
    one, other = Provenance("a", "p", "r", "i"), Provenance("b", "p", "r")

    assert in_common([one, other]) == Provenance("", "p", "r", "")
    assert in_common([one, one]) == one
    assert in_common([]) == Provenance()


def test_the_list_of_distributions_fits_into_lines_of_4_kb_and_is_read_back() -> None:
    lines = list(packages_lines(MANY))

    assert len(lines) > 1
    assert all(len(line) <= 4096 and is_packages_line(line) for line in lines)
    # Delivered twice, and among other lines.
    assert read_packages(["hello", *lines, *reversed(lines)]) == {packages_digest(MANY): MANY}
    assert list(packages_lines(())) == []


def test_a_list_that_a_body_made_up_or_that_was_cut_does_not_count() -> None:
    lines = list(packages_lines(MANY))

    assert read_packages([*lines, lines[0] + " evil==6.6.6"]) == {}
    assert read_packages(lines[1:]) == {}
    assert not is_packages_line("perago.packages are listed here")
