"""docs/workflows.md is true: on a laptop, and in the section that needs them on real servers."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.pages import ROOT, follow, only_files, reader, section, substituted

PAGE = (ROOT / "docs/workflows.md").read_text()
ON_SERVERS = section(PAGE, "## Start one")
PROGRAMS = Path(sys.executable).parent

pytestmark = pytest.mark.slow


def test_a_reader_of_the_workflows_page_gets_what_it_shows(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()

    assert follow(PAGE.replace(ON_SERVERS, ""), folder, reader(PROGRAMS)) >= 6


def test_a_reader_with_servers_starts_workflows_as_the_page_shows(
    tmp_path: Path, lakefs_server: Any, conductor_server: Any
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    own = uuid.uuid4().hex[:12]
    page = substituted(
        only_files(PAGE.replace(ON_SERVERS, "")) + ON_SERVERS,
        {
            "songs": f"songs{own}",
            "plays": f"plays{own}",
            "ask_for_delivery": f"ask{own}",
            "http://lakefs:8000": lakefs_server.url,
            "http://conductor:8080/api": conductor_server.url,
        },
    )
    environment = reader(PROGRAMS) | {
        "CONDUCTOR_SERVER_URL": conductor_server.url,
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
    }
    try:
        assert follow(page, folder, environment) >= 9
    finally:
        lakefs_server.call("DELETE", f"/repositories/songs{own}?force=true")
