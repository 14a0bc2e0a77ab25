"""`.ci/run` tests a checkout in a folder called perago, whatever the folder is called that it is started in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
MAKE = """#!/bin/sh
pwd > "$SEEN"
echo "=== $LAST_WORD in 0.1s ==="
exit $CODE
"""


@pytest.mark.parametrize("folder", ["perago", "main"])
@pytest.mark.parametrize("code", [0, 1])
def test_ci_runs_in_a_folder_called_perago_and_ends_with_pytests_last_word(
    tmp_path: Path, folder: str, code: int
) -> None:
    checkout, tools, seen = tmp_path / folder, tmp_path / "bin", tmp_path / "seen"
    (checkout / ".ci").mkdir(parents=True)
    shutil.copy(RUN, checkout / ".ci" / "run")
    tools.mkdir()
    (tools / "make").write_text(MAKE)
    (tools / "make").chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(checkout)]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "one"]):
        subprocess.run([*git, *words], check=True)
    told = {"SEEN": str(seen), "LAST_WORD": "3 passed", "CODE": str(code), "TMPDIR": str(tmp_path)}

    done = subprocess.run(
        ["bash", str(checkout / ".ci" / "run")],
        env={**os.environ, **told, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code, done.stderr
    assert Path(seen.read_text().strip()).name == "perago"
    assert done.stdout.splitlines()[-1] == "=== 3 passed in 0.1s ==="
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {folder, "bin", "seen"}, "the clone is removed"
