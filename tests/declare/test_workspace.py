"""Valid workspace specs; test_diagnostics.py has the invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from perago import (
    WorkspaceSpec,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    require_rows,
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
        "ledger_key": (),
        "changes_only": (),
        "on_rewritten": "refuse",
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
