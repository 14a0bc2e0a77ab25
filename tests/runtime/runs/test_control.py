"""The command that starts a run anew."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from perago.declare.run_steps import TARGET
from perago.runtime.runs.control import new_run_command
from perago.runtime.runs.record import Run


def test_the_command_for_a_new_run_names_only_modules_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run("1", "wf", "plays", ("tasks.py", TARGET), str(tmp_path), workflow_file="flows.py:plays")
    given = {"workspace": {"repository": "songs", "branch": "main"}}

    words = shlex.split(new_run_command(run, given, tmp_path))

    assert words[:5] == ["perago", "run", "flows.py:plays", "--tasks", "tasks.py"]
    assert TARGET not in words
