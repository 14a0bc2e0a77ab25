"""What a workspace spec says when it is right; test_mistakes.py has what is wrong."""

from __future__ import annotations

import pytest

from perago import WorkspaceSpec, forbid_glob, require_file


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
        "pre": (),
        "post": (),
        "read_only": False,
        "on_abandoned": "replace",
        "on_advanced": "refuse",
        "placement": "auto",
    }


def test_checks_are_kept_in_their_order() -> None:
    def own(workdir: object, params: object) -> None: ...

    spec = WorkspaceSpec(pre=[require_file("a"), own], post=[forbid_glob("tmp/**")])

    assert spec.pre == (require_file("a"), own)
    assert spec.post == (forbid_glob("tmp/**"),)
