"""Valid workspace specs; test_diagnostics.py has the invalid ones."""

from __future__ import annotations

from datetime import date
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from perago import (
    TaskInputError,
    WorkspaceSpec,
    forbid_glob,
    require_dir,
    require_file,
    require_foreign_key,
    require_glob,
    require_rows,
    task,
)
from perago.declare.checks import Check
from perago.protocol.view import View


@pytest.mark.parametrize(
    ("written", "prefix", "object_prefix"),
    [
        ("/", "/", ""),
        ("/audio", "/audio", "audio/"),
        ("audio/render", "/audio/render", "audio/render/"),
        ("/a b/ü", "/a b/ü", "a b/ü/"),
        ("/x/_lakefs_actions", "/x/_lakefs_actions", "x/_lakefs_actions/"),
        ("/_lakefs_actions_too", "/_lakefs_actions_too", "_lakefs_actions_too/"),
    ],
)
def test_a_prefix_has_one_form_for_people_and_one_for_objects(
    written: str, prefix: str, object_prefix: str
) -> None:
    spec = WorkspaceSpec(prefix=written)

    assert (spec.prefix, spec.object_prefix) == (prefix, object_prefix)


def test_the_defaults_are_the_whole_repository_writable_and_replace() -> None:
    spec = WorkspaceSpec()

    assert spec.model_dump() == {
        "prefix": "/",
        "reads": None,
        "writes": None,
        "pre": (),
        "post": (),
        "read_only": False,
        "on_abandoned": "replace",
        "unsigned": "replace",
        "on_advanced": "refuse",
        "placement": "auto",
    }


def test_checks_are_kept_in_their_order() -> None:
    def own(workdir: object, params: object) -> None: ...

    spec = WorkspaceSpec(pre=[require_file("a"), own], post=[forbid_glob("tmp/**")])

    assert spec.pre == (require_file("a"), own)
    assert spec.post == (forbid_glob("tmp/**"),)


@pytest.mark.parametrize(
    ("said", "view"),
    [
        ({}, View("data/")),
        ({"reads": ["plays"]}, View("data/", ("plays",))),
        ({"writes": ("out/x.csv",)}, View("data/", None, ("out/x.csv",))),
        ({"reads": (), "writes": ["out"]}, View("data/", (), ("out",))),
        ({"reads": ["a b/ü"], "writes": ["a b"]}, View("data/", ("a b/ü",), ("a b",))),
        ({"reads": ["plays", "plays", "plays/raw"]}, View("data/", ("plays", "plays", "plays/raw"))),
        ({"reads": ["plays"], "read_only": True}, View("data/", ("plays",))),
    ],
)
def test_reads_and_writes_are_a_view_below_the_prefix(said: dict[str, object], view: View) -> None:
    assert WorkspaceSpec(prefix="/data", **said).view == view


def test_a_folder_of_the_actions_name_elsewhere_may_be_read() -> None:
    spec = WorkspaceSpec(prefix="/x", reads=["_lakefs_actions"])

    assert spec.view.roots == ("x/_lakefs_actions",)
    assert WorkspaceSpec(reads=["_lakefs_actions_too"]).view.roots == ("_lakefs_actions_too",)


@pytest.mark.parametrize(
    "check",
    [
        require_file("plays/monday.csv"),
        require_file("plays"),
        require_dir("songs/2026"),
        require_dir("deep"),
        require_file("deep/in/a.csv"),
        require_glob("deep/*/a.csv"),
        require_glob("pl*/*.csv"),
        require_glob("**/*.csv"),
        require_glob("*"),
        require_glob("plays/**"),
        forbid_glob("out/tmp/**"),
        lambda workdir, params: None,
    ],
)
def test_a_check_may_name_anything_that_may_be_in_the_view(check: Check) -> None:
    view = {"reads": ("plays", "songs", "deep/in"), "writes": ("out",)}

    assert WorkspaceSpec(pre=[check], **view).pre == (check,)
    assert WorkspaceSpec(prefix="/a", post=[check], **view).post == (check,)


def test_without_reads_checks_see_the_whole_prefix() -> None:
    checks = (require_file("anything"), require_rows("any/table"))

    assert WorkspaceSpec(prefix="/a", writes=["out"], pre=checks).pre == checks


@pytest.mark.parametrize(
    ("declared", "policy"),
    [
        ({}, "replace"),
        ({"unsigned": "replace"}, "replace"),
        ({"unsigned": "refuse"}, "replace-signed"),
        ({"on_abandoned": "supersede"}, "supersede"),
        ({"on_abandoned": "reuse", "unsigned": "refuse"}, "reuse"),
    ],
)
def test_both_fields_together_select_the_policy(declared: dict[str, Any], policy: str) -> None:
    spec = WorkspaceSpec(**declared)
    assert spec.policy.name == policy
    assert spec.unsigned == ("replace" if spec.policy.replaces_unsigned else "refuse")


# --- templates -----------------------------------------------------------------------------------------------


class Region(Enum):
    EU = "eu"
    US = "us/east"


class Size(IntEnum):
    SMALL = 1


class Slice(BaseModel):
    day: date = date(2026, 1, 2)
    hour: int = 7
    region: Region = Region.EU
    size: Size = Size.SMALL
    kind: Literal["raw", "clean"] = "raw"
    name: Annotated[str, Field(max_length=5000)] = "so what"
    rate: float = 0.5


class Empty(BaseModel):
    pass


@pytest.mark.parametrize(
    ("paths", "names", "filled"),
    [
        (("raw/day={day}",), ("day",), ("raw/day=2026-01-02",)),
        (("{day}",), ("day",), ("2026-01-02",)),
        (("{kind}/{region}-{hour}h", "plays"), ("kind", "region", "hour"), ("raw/eu-7h", "plays")),
        (("a{size}{hour}/{size}", "b/{hour}"), ("size", "hour"), ("a17/1", "b/7")),
        (("name={name}/x",), ("name",), ("name=so what/x",)),
        (("plays",), (), ("plays",)),
    ],
)
def test_paths_are_filled_with_params(
    paths: tuple[str, ...], names: tuple[str, ...], filled: tuple[str, ...]
) -> None:
    for spec, field in ((WorkspaceSpec(reads=paths), "reads"), (WorkspaceSpec(writes=paths), "writes")):
        assert spec.names == names
        assert getattr(spec.filled(Slice()), field) == filled
        assert spec.filled(Slice()).names == ()
        assert spec.filled(Slice()).view.roots == WorkspaceSpec(**{field: filled}).view.roots


def test_a_spec_without_templates_is_its_own_filling() -> None:
    spec = WorkspaceSpec(reads=("plays",), post=(require_file("plays/{day}"),))

    assert spec.filled(Slice()) is spec
    assert WorkspaceSpec().names == ()


def test_an_unfilled_view_is_the_folders_above_the_templates_and_never_a_brace() -> None:
    spec = WorkspaceSpec(prefix="/data", reads=("raw/day={day}/x", "plays"), writes=("clean/{day}",))
    assert spec.view == View("data/", ("raw", "plays"), ("clean",))

    every = WorkspaceSpec(prefix="/data", writes=("{day}",))
    assert every.view.may_change("data/anything")
    assert every.view.roots == ("data/",)


def test_checks_are_filled_together_with_the_paths() -> None:
    def own(workdir: Path, params: Slice) -> None: ...

    spec = WorkspaceSpec(
        reads=("raw/{region}", "songs"),
        writes=("clean/day={day}",),
        pre=(require_dir("raw/{region}"), require_glob("**/{name}"), require_glob("songs/{a,b}")),
        post=(
            require_glob("clean/day={day}/*.csv", level="warn"),
            require_rows("clean/day={day}"),
            require_foreign_key("clean/day={day}", "song", "songs"),
            own,
        ),
    )

    filled = spec.filled(Slice(region=Region.US, name="a*"))

    assert filled.pre == (
        require_dir("raw/us%2Feast"),
        require_glob("**/a%2A"),
        require_glob("songs/{a,b}"),
    )
    assert filled.post == (
        require_glob("clean/day=2026-01-02/*.csv", level="warn"),
        require_rows("clean/day=2026-01-02"),
        require_foreign_key("clean/day=2026-01-02", "song", "songs"),
        own,
    )


@pytest.mark.parametrize(
    "check",
    [
        require_file("clean/day={day}"),
        require_glob("clean/day={day}/**"),
        require_glob("clean/*/*.csv"),
        require_glob("clean/day=*/{hour}"),
        require_glob("**/*.csv"),
        require_dir("clean"),
        require_dir("clean/day=2026-01-02"),
        require_rows("clean/day=2026-01-02"),
        require_rows("clean/day={day}/part={hour}"),
        require_rows("plays/{hour}"),
        require_dir("old/day={day}"),
        forbid_glob("{hour}/x"),
    ],
)
def test_a_check_may_name_what_some_filling_may_hold(check: Check) -> None:
    view = {"reads": ("plays", "old/day=2026-01-02", "{hour}"), "writes": ("clean/day={day}",)}

    assert WorkspaceSpec(pre=[check], **view).pre == (check,)


def test_a_task_without_templates_takes_braces_in_checks_as_they_are() -> None:
    @task(owner_email="a@b.c", workspace=WorkspaceSpec(pre=[require_file("{nobody}.csv")]))
    def work(workspace: Path, params: Empty) -> Empty:
        return params

    [check] = work.__perago_task__.workspace.filled(Empty()).pre  # type: ignore[attr-defined]
    assert check == require_file("{nobody}.csv")


def test_a_model_that_is_not_complete_yet_is_taken() -> None:
    class Late(BaseModel):
        day: Later  # type: ignore[name-defined]  # noqa: F821

    @task(owner_email="a@b.c", workspace=WorkspaceSpec(writes=["{day}"]))
    def work(workspace: Path, params: Late) -> Empty:
        return Empty()


@pytest.mark.parametrize(
    ("path", "name", "says"),
    [
        ("raw/{name}", "", "params.name cannot fill 'raw/{name}': it must not be empty; send another value"),
        ("raw/{name}", "..", "it must not begin with '.' or '_'"),
        ("_lakefs_{name}", "actions", "the path must not be inside _lakefs_actions/"),
        ("_lakefs_{name}/x", "actions", "the path must not be inside _lakefs_actions/"),
        (".perago-attempt.{name}", "json", "the path must not name .perago-attempt.json"),
        (
            "{name}{name}/{day}",
            "x" * 200,
            "params.name and params.day cannot fill '{name}{name}/{day}': the path",
        ),
        ("raw/{name}", "a ", "the path must not be empty, and must not begin or end with white space"),
        (
            "{name}/{name}/{name}/{name}/{name}/{name}",
            "x" * 200,
            "the path must not be longer than 1024 bytes",
        ),
    ],
)
def test_a_value_that_cannot_fill_a_path_is_wrong_input(path: str, name: str, says: str) -> None:
    with pytest.raises(TaskInputError) as refused:
        WorkspaceSpec(reads=[path]).filled(Slice(name=name))

    assert says in str(refused.value)
    assert str(refused.value).count("send another value") == 1


def test_every_value_that_cannot_be_filled_is_named() -> None:
    spec = WorkspaceSpec(reads=("{name}", "x{name}"), writes=("{day}",), post=(require_file("{day}/{kind}"),))

    with pytest.raises(TaskInputError) as refused:
        spec.filled(Slice.model_construct(name="", day=None, kind="_x"))

    assert str(refused.value) == (
        "params.name cannot fill '{name}': it must not be empty; send another value; "
        "params.day cannot fill '{day}': it must be text, a whole number or a date; send another value; "
        "params.kind cannot fill '{day}/{kind}': it must not begin with '.' or '_'; send another value"
    )
