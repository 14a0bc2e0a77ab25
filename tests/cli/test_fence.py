"""`perago fence` on the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app
from tests.conftest import LakefsServer

EXPECTED = {
    "install": {"head", "changed"},
    "prove": {"refused", "let_through", "landed", "stopped"},
    "remove": {"head", "changed"},
}
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(
    lakefs_server: LakefsServer, lakefs_repository: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Run a sub-command of `perago fence` on a fresh repository."""
    monkeypatch.setenv("PERAGO_ROOT", str(tmp_path))
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", lakefs_server.url)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", lakefs_server.access_key_id)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", lakefs_server.secret_access_key)

    def invoke(command: str, *more: str) -> tuple[int, str]:
        agreed = [] if command == "prove" else ["--yes"]
        done = CliRunner().invoke(app, ["fence", command, lakefs_repository, *more, *agreed])
        named = f"lake: lakeFS 1.84.0 at {lakefs_server.url}\n"
        assert named in done.output
        return done.exit_code, done.output.replace(named, "")

    return invoke


def test_a_fence_is_installed_proved_and_removed(run: Run, lakefs_repository: str) -> None:
    code, text = run("prove")
    assert code == 1
    assert f"perago fence install {lakefs_repository} main" in text

    code, text = run("install")
    assert code == 0
    assert "older refs" in text
    assert "stay soft" in text
    assert run("install") == (
        0,
        text.splitlines()[0].replace("carries the fence now,", "already carries the fence,") + "\n",
    )

    code, text = run("prove")
    assert code == 0
    assert "refused, as it must be" in text
    assert "412" in text
    assert "stopped by the barrier: " in text
    assert "holds" in text

    assert run("remove", "main")[0] == 0
    assert run("remove") == (0, f"{lakefs_repository}/main carries no fence\n")
    assert run("prove")[0] == 1


def test_all_three_print_json(run: Run) -> None:
    for command, keys in EXPECTED.items():
        code, text = run(command, "--json")
        assert code == 0
        assert json.loads(text).keys() == keys


def test_an_unknown_branch_is_an_error_in_one_line(run: Run) -> None:
    code, text = run("install", "no-such-branch")
    assert code == 1
    assert text.startswith("error: ")
    assert "no-such-branch" in text
    assert len(text.splitlines()) == 1


def test_without_settings_the_command_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        kind = "SERVER" if name == "ENDPOINT_URL" else "CREDENTIALS"
        monkeypatch.delenv(f"LAKECTL_{kind}_{name}", raising=False)
    for command in (("install", "--yes"), ("prove",), ("remove", "--yes")):
        done = CliRunner().invoke(app, ["fence", command[0], "repo", *command[1:]])
        assert done.exit_code == 1
        assert "LAKECTL_SERVER_ENDPOINT_URL" in done.output
        assert "the embedded lake needs no fence" in done.output
        assert "--local" not in done.output
