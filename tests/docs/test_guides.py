"""The pages that answer one question each are true: what they show is what a reader gets."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.pages import ROOT, follow, reader, substituted

pytestmark = pytest.mark.slow


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    empty = tmp_path / "empty"
    empty.mkdir()
    return empty


@pytest.fixture
def environment() -> dict[str, str]:
    return reader(Path(sys.executable).parent)


@pytest.fixture
def on_servers(environment: dict[str, str], lakefs_server: Any, conductor_server: Any) -> dict[str, str]:
    return environment | {
        "CONDUCTOR_SERVER_URL": conductor_server.url,
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
    }


def test_a_task_gets_its_secret_from_the_environment(folder: Path, environment: dict[str, str]) -> None:
    assert follow(page("secrets.md"), folder, environment) == 3


def test_two_teams_are_refused_or_publish_side_by_side(folder: Path, environment: dict[str, str]) -> None:
    assert follow(page("two-teams.md"), folder, environment) == 9


def test_a_run_that_fails_shows_nothing_and_is_published_whole(
    folder: Path, environment: dict[str, str]
) -> None:
    assert follow(page("transactions.md"), folder, environment) == 8


def test_a_task_works_on_what_has_changed_and_a_step_is_skipped(
    folder: Path, environment: dict[str, str]
) -> None:
    assert follow(page("only-what-changed.md"), folder, environment) == 7


def test_a_report_leads_back_to_what_was_imported(folder: Path, environment: dict[str, str]) -> None:
    assert follow(page("provenance.md"), folder, environment) == 12


def test_a_notebook_reads_tables_and_files_at_a_commit(folder: Path, environment: dict[str, str]) -> None:
    assert follow(page("notebooks.md"), folder, environment) == 4


def test_conductor_starts_the_workflow_that_tells_of_a_failure(
    folder: Path, on_servers: dict[str, str], conductor_server: Any
) -> None:
    own = uuid.uuid4().hex[:12]
    text = substituted(
        page("notifications.md"),
        {
            "check_delivery": f"check{own}",
            "tell_owner": f"tell{own}",
            "delivery": f"delivery{own}",
            "http://conductor:8080/api": conductor_server.url,
        },
    )

    assert follow(text, folder, on_servers) == 6


def test_a_published_table_is_read_from_outside(
    folder: Path, on_servers: dict[str, str], lakefs_server: Any
) -> None:
    own = uuid.uuid4().hex[:12]
    text = substituted(page("reading-tables.md"), {"songs": f"songs{own}"})
    try:
        assert follow(text, folder, on_servers) == 7
    finally:
        lakefs_server.call("DELETE", f"/repositories/songs{own}?force=true")
