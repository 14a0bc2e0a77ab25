"""README.md is true: what it shows is what a reader gets, on a laptop and with servers."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from realservers.state import free_ports
from tests.support.docs.pages import ROOT, follow, only_files, reader, section, substituted

README = (ROOT / "README.md").read_text()
TARGETS = "```\nmake demo    #"
ON_SERVERS = section(README, "## With a Conductor and a lakeFS")
PROGRAMS = Path(sys.executable).parent


def without_targets() -> str:
    """The page without its first block, which installs things and runs for minutes."""
    before, _, rest = README.partition(TARGETS)
    return before + rest.partition("\n```\n")[2]


def test_the_readme_begins_with_what_perago_is_for_and_its_two_commands() -> None:
    _, purpose, commands, *_ = README.split("\n\n")

    assert purpose.startswith("Perago runs the steps of a data pipeline")
    names = [line.split()[:2] for line in commands.splitlines()[1:-1]]
    assert names == [["make", "demo"], ["make", "test"]]
    for name in names:
        subprocess.run([*name, "--dry-run"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


@pytest.mark.slow
def test_a_reader_of_the_readme_gets_what_it_shows(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()

    assert follow(without_targets().replace(ON_SERVERS, ""), folder, reader(PROGRAMS)) == 5


@pytest.mark.slow
def test_a_reader_of_the_readme_with_servers_gets_what_it_shows(
    tmp_path: Path, lakefs_server: Any, conductor_server: Any
) -> None:
    folder = tmp_path / "empty"
    (folder / "data/plays/raw").mkdir(parents=True)
    plays = "play_id,song,seconds\n1,So What,545\n2,So What,12\n3,So What,561\n4,Naima,263\n"
    (folder / "data/plays/raw/monday.csv").write_text(plays)
    own = uuid.uuid4().hex[:12]
    page = substituted(
        only_files(without_targets().replace(ON_SERVERS, "")) + ON_SERVERS,
        {
            "http://conductor:8080/api": conductor_server.url,
            "http://lakefs:8000": lakefs_server.url,
            "YOUR-KEY-ID": lakefs_server.access_key_id,
            "YOUR-SECRET": lakefs_server.secret_access_key,
            "--http 8080": f"--http {free_ports(1)[0]}",
            "songs": f"songs{own}",
            "clean_plays": f"clean_plays{own}",
            '    "plays",': f'    "plays{own}",',
            "submit plays": f"submit plays{own}",
            "workflow plays:": f"workflow plays{own}:",
        },
    )
    try:
        assert follow(page, folder, reader(PROGRAMS)) == 10
    finally:
        lakefs_server.call("DELETE", f"/repositories/songs{own}?force=true")
