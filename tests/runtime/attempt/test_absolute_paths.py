"""Formats that name files by absolute paths are refused by name, whatever wrote them; names that only look alike are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import WorkspaceSpec, task
from perago.errors import PostGuardrailViolation
from perago.protocol.changes import Changes
from perago.runtime.attempt.place import check_absolute_paths
from perago.testing import try_task

ICEBERG = json.dumps({"format-version": 2, "table-uuid": "1", "location": "/workdir/t"})
CLONED = json.dumps({"add": {"path": "file:/a/work%20dir/other/part-0.parquet", "size": 1}})
DELETED = json.dumps(
    {"add": {"path": "part-0.parquet", "deletionVector": {"pathOrInlineDv": "file:/a/work dir/d"}}}
)
HUDI = "#Properties saved on 2026-11-18\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.name=t\n"
LOG = "t/_delta_log/00000000000000000001.json"


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"t/_spark_metadata/0": "v1\n"}, "the log of a streaming sink"),
        ({"c/metadata": '{"id":"1"}', "c/offsets/0": "v1\n"}, "a streaming checkpoint"),
        ({"metadata": '{"id":"1"}', "offsets/3": "v1\n"}, "a streaming checkpoint"),
        ({"t/metadata/v1.metadata.json": ICEBERG}, "an Iceberg table"),
        ({"t/.hoodie/hoodie.properties": HUDI}, "a Hudi table"),
        ({".hoodie/timeline/1.commit": "{}", ".hoodie/hoodie.properties": HUDI}, "a Hudi table"),
        ({"t/_symlink_format_manifest/day=1/manifest": "file:/x"}, "a manifest of symbolic links"),
        ({LOG: f'{{"commitInfo": {{}}}}\n{CLONED}'}, "a shallow clone"),
        ({LOG: DELETED}, "a shallow clone"),
    ],
)
def test_files_that_lead_nowhere_afterwards_are_refused(files: dict[str, str], kind: str) -> None:
    with pytest.raises(
        PostGuardrailViolation, match=rf"^the task wrote .*: {kind}, which names files by absolute"
    ):
        check(files)


@pytest.mark.parametrize(
    "files",
    [
        {"t/_spark_metadata": "a file", "_spark_metadata.txt": ""},
        {"offsets/0": "mine", "c/offsets/0": "mine", "c/metadata": "name: mine"},
        {"t/metadata/song.metadata.json": '{"title": "So What"}', "v1.metadata.json": ICEBERG},
        {"t/.hoodie/notes.txt": HUDI, "t/.hoodie_/hoodie.properties": HUDI, "hoodie.properties": HUDI},
        {"t/.hoodie/hoodie.properties": "colour=red", "t/.hoodie/1.commit": "{}", "u/.hoodie": HUDI},
        {LOG: json.dumps({"add": {"path": "day=1/part-0.parquet"}}) + "\nno JSON\n[]"},
        {LOG: json.dumps({"add": {"path": "s3://another/bucket/part-0.parquet"}})},
        {LOG: json.dumps({"remove": {"path": "file:/a/work dir/part-0.parquet"}})},
    ],
)
def test_other_files_are_published(files: dict[str, str]) -> None:
    check(files)


class Params(BaseModel):
    number: int


class Made(BaseModel):
    pass


@task(name="add", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/data"))
def add(workspace: Path, params: Params) -> Made:
    (workspace / "song.txt").write_text("So What")
    (workspace / "t" / "_spark_metadata" / str(params.number)).write_text("v1\n")
    return Made()


def test_files_of_the_input_stay_and_a_plain_task_may_not_add_to_them() -> None:
    stays, adds = (try_task(add, {"t/_spark_metadata/0": "v1\n"}, params=Params(number=n)) for n in (0, 1))

    assert stays.published
    assert not adds.published
    assert "the task wrote t/_spark_metadata/1: the log of a streaming sink" in (adds.reason or "")


def check(files: dict[str, str]) -> None:
    check_absolute_paths(
        Changes(tuple(files), ()), files, lambda path: files[path].encode(), gone="/a/work dir"
    )
