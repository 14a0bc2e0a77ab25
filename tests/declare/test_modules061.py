"""Task modules as people wrote them for the public perago 0.6.1: they load unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago import TaskDefinition, TaskFailed, TaskTerminalError, build_taskdef, load_module_task
from perago.declare.discovery import collect

FOLDER = Path(__file__).parent / "modules061"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name: str) -> TaskDefinition:
    return load_module_task(str(FOLDER / f"{name}.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_061_loads_and_gives_a_taskdef(name: str) -> None:
    definition = load(name)

    assert collect([str(FOLDER / f"{name}.py")]).errors == ()
    assert build_taskdef(definition)["name"] == definition.name


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_061_loads_by_its_import_path(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)

    assert load_module_task(name).fn.__module__ == name


def test_a_module_of_061_behaves_as_it_did_there() -> None:
    features = load("features_build")
    assert features.workspace is not None
    assert features.workspace.object_prefix == "features/"
    assert features.controls.retry.jitter_ms == 250
    assert features.controls.limits.rate_limit_frequency_in_seconds == 60

    audio = load("audio_render")
    assert audio.workspace is not None
    assert audio.workspace.prefix == "/audio/render"
    assert audio.controls.publish_budget is not None
    assert audio.controls.publish_budget.response_timeout_seconds == 100

    assert load("metadata_validate").workspace is None
    assert load("prices_fetch").owner_email == "prices team"
    catalog = load("catalog_report").workspace
    assert catalog is not None
    assert catalog.read_only


Attempt = Callable[[TaskDefinition, Path], dict[str, Any]]


def with_workspace(params: str, files: dict[str, str]) -> Attempt:
    def run(definition: TaskDefinition, workdir: Path) -> dict[str, Any]:
        for name, text in files.items():
            (workdir / name).parent.mkdir(parents=True, exist_ok=True)
            (workdir / name).write_text(text)
        return definition.dump_result(definition.fn(workdir, definition.parse_params(params)))

    return run


def without_workspace(params: str) -> Attempt:
    return lambda definition, workdir: definition.dump_result(definition.fn(definition.parse_params(params)))


SOURCE = '{"uri": "u", "seen_at": "2026-01-01T00:00:00Z"}'


@pytest.mark.parametrize(
    ("name", "attempt", "result"),
    [
        (
            "features_build",
            with_workspace('{"source": "raw/a.csv"}', {"raw/a.csv": "1\n2\n"}),
            {"row_count": 2, "columns": []},
        ),
        ("audio_render", with_workspace('{"stem": "vocal"}', {}), {"path": "vocal.wav"}),
        (
            "catalog_report",
            with_workspace("{}", {"catalog/a": "", "catalog/b": ""}),
            {"names": ["a", "b"], "complete": True},
        ),
        (
            "catalog_report",
            with_workspace("{}", {"catalog/a": ""}),
            {"names": ["a"], "complete": False},
        ),
        (
            "metadata_validate",
            without_workspace(f'{{"title": "t", "sources": [{SOURCE}]}}'),
            {"findings": [{"uri": "u", "ok": True}]},
        ),
        (
            "prices_fetch",
            without_workspace('{"currency": "EUR", "symbols": ["X"]}'),
            {"prices": {"X": {"symbol": "X", "amount": "1.50"}}},
        ),
    ],
)
def test_the_body_of_a_module_of_061_runs(
    name: str, attempt: Attempt, result: dict[str, Any], tmp_path: Path
) -> None:
    assert attempt(load(name), tmp_path) == result


def test_the_errors_of_061_are_raised_by_their_names() -> None:
    definition = load("metadata_validate")

    with pytest.raises(TaskFailed, match="no sources yet"):
        definition.fn(definition.parse_params('{"title": "t", "sources": []}'))
    with pytest.raises(TaskTerminalError, match="a title is required"):
        definition.fn(definition.parse_params(f'{{"title": "", "sources": [{SOURCE}]}}'))
