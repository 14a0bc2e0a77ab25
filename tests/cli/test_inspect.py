"""Commands that look into a lake: they name it, make nothing, and tell what there is to who asks for what is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app
from perago.cli.history import replaced_or_nothing
from perago.errors import LakeForbidden, LakeNotFound
from perago.lake.local.lake import LocalLake
from perago.runtime.lake_lookup import suggesting_existing_names
from perago.settings import LAKEFS_NAMES
from tests.conftest import LakefsServer
from tests.support.faults.ports import Wrapped, refusing

LOOKS = {
    "history": ("history", "songs"),
    "diff": ("diff", "songs", "main", "main"),
    "ls": ("ls", "songs"),
    "cat": ("cat", "songs", "data/a"),
    "sweep": ("sweep", "--dry-run"),
}


def perago(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refusal(*arguments: str) -> str:
    done = perago(*arguments)
    assert done.exit_code == 1, done.output
    *before, line = done.stderr.splitlines()
    assert all(one.startswith("lake: ") for one in before)
    return line


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*LAKEFS_NAMES, "CONDUCTOR_SERVER_URL", "PERAGO_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def songs(here: Path) -> Path:
    """A folder whose .perago has a repository with two folders."""
    for path in ("in/data/a", "in/raw/b"):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(path)
    assert perago("put", "songs", "in", "--create").exit_code == 0
    return here


@pytest.mark.parametrize("command", LOOKS)
def test_inspecting_in_a_wrong_folder_creates_nothing_and_names_the_root(here: Path, command: str) -> None:
    line = refusal(*LOOKS[command])
    given = refusal(*LOOKS[command], "--root", "there")

    assert f"there is no lake below {here / '.perago'}" in line
    assert "--root" in line
    assert f"there is no lake below {here / 'there'}" in given
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("command", LOOKS)
def test_the_embedded_lake_is_named_on_stderr(songs: Path, command: str) -> None:
    done = perago(*LOOKS[command])

    assert done.exit_code == 0, done.output
    assert done.stderr == f"lake: embedded, {songs / '.perago' / 'lake'}\n"


def test_lakefs_is_named_without_what_is_secret_in_its_address(
    lakefs_server: LakefsServer,
    lakefs_repository: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PERAGO_ROOT", str(tmp_path))
    plain = perago("history", lakefs_repository, "--remote")
    monkeypatch.setenv(LAKEFS_NAMES[0], lakefs_server.url.replace("//", "//me:word@"))
    named = perago("history", lakefs_repository, "--remote")

    assert (plain.exit_code, plain.stderr) == (0, f"lake: lakeFS 1.84.0 at {lakefs_server.url}\n")
    assert named.stderr.splitlines()[0] == f"lake: lakeFS 1.84.0 at {lakefs_server.url}"


def test_a_repository_that_is_not_there_is_told_with_those_that_are(songs: Path) -> None:
    for command in ("history", "ls", "diff", "cat"):
        words = [word.replace("songs", "song") for word in LOOKS[command]]
        assert refusal(*words) == (
            "error: there is no repository 'song'; there are: songs; did you mean 'songs'?"
        )


def test_a_ref_that_is_not_there_is_told_with_those_that_are(songs: Path) -> None:
    assert perago("branch", "songs", "dev").exit_code == 0
    said = "error: repository 'songs' has no branch, tag or commit 'dew'; there are: dev, main; did you mean 'dev'?"

    assert refusal("history", "songs", "dew") == said
    assert refusal("history", "songs@dew") == said
    assert refusal("ls", "songs@dew") == said
    assert refusal("diff", "songs", "main", "dew") == said
    assert refusal("cat", "songs", "dew", "data/a") == said


def test_a_folder_or_object_that_is_not_there_is_told_with_those_that_are(songs: Path) -> None:
    assert refusal("ls", "songs@main", "dta") == (
        "error: there is nothing below 'dta/' at main of repository 'songs'; folders there: data/, raw/; "
        "did you mean 'data/'?"
    )
    assert "folders there: data/" in refusal("ls", "songs", "main", "nowhere/at/all")
    assert "there are: data/a; did you mean 'data/a'?" in refusal("cat", "songs", "data/b")


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        (("songs",), ["data/a", "raw/b"]),
        (("songs@main",), ["data/a", "raw/b"]),
        (("songs", "main"), ["data/a", "raw/b"]),
        (("songs", "main", "/data"), ["data/a"]),
        (("songs@main", "data"), ["data/a"]),
        (("songs@main", "data/a"), ["data/a"]),
        (("songs@empty",), []),
    ],
)
def test_ls_takes_main_unless_a_ref_is_named(songs: Path, words: tuple[str, ...], paths: list[str]) -> None:
    first = json.loads(perago("history", "songs", "--json").stdout)[-1]["id"]
    assert perago("branch", "songs", "empty", first).exit_code == 0

    listed = json.loads(perago("ls", *words, "--json").stdout)

    assert [entry["path"] for entry in listed] == paths


@pytest.mark.parametrize(
    "words", [("songs", "data/a"), ("songs@main", "/data/a"), ("songs", "main", "data/a")]
)
def test_cat_takes_main_unless_a_ref_is_named(songs: Path, words: tuple[str, ...]) -> None:
    assert perago("cat", *words).stdout == "in/data/a"


@pytest.mark.parametrize(
    "words", [("ls", "songs@main", "data", "x"), ("cat", "songs@main", "main", "x"), ("ls", "songs@")]
)
def test_a_word_too_many_is_a_usage_error(songs: Path, words: tuple[str, ...]) -> None:
    assert perago(*words).exit_code == 2


def test_the_lakes_own_error_stays_if_names_may_not_be_listed(tmp_path: Path) -> None:
    def around(name: str, call: Callable[..., object], arguments: tuple[object, ...]) -> object:
        if name == "branches":
            raise LakeForbidden("not you")
        return call(*arguments)

    with closing(LocalLake(tmp_path)) as lake:
        lake.create_repository("songs")
        closed = Wrapped(lake, around)
        with (
            pytest.raises(LakeNotFound, match="ref 'dev' is no commit, branch or tag of repository 'songs'"),
            suggesting_existing_names(closed, "songs", "dev"),  # type: ignore[arg-type]
        ):
            lake.commit_at("songs", "dev")


def test_a_history_without_the_right_to_read_tags_is_still_a_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(LocalLake(tmp_path)) as lake:
        lake.create_repository("songs")
        forbidden = refusing(lake, "tags", error=LakeForbidden("tags: 403"))
        assert replaced_or_nothing(forbidden, "songs", list(lake.log("songs", "main", 10))) == ({}, 0)
    assert "replaced commits are not shown, because their tags could not be read: tags: 403" in (
        capsys.readouterr().err
    )
