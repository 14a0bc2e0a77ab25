"""Output of bodies, reasons, messages and names never control the reader's terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.processes.commands import Shell

pytestmark = pytest.mark.slow

CLEAR = "\x1b[2J"
RESET = "\x1bc"
TITLE = "\x1b]0;owned\x07"
BAR = "10 %\r20 %\r30 %"
TASKS = f"""
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, task


class Nothing(BaseModel):
    pass


@task(name="loud", owner_email="a@example.com", controls=TaskControls(retry=RetryPolicy(count=0)))
def loud(params: Nothing) -> Nothing:
    print({"a" + CLEAR + RESET + TITLE + "b"!r})
    print({BAR!r})
    print("\\x1b[31mred")
    raise ValueError({"why" + CLEAR + RESET + TITLE + chr(13) + "done: COMPLETED"!r})
"""
FLOW = {
    "name": "flow",
    "version": 1,
    "schemaVersion": 2,
    "tasks": [
        {"name": "loud", "taskReferenceName": "loud", "type": "SIMPLE", "inputParameters": {"params": {}}}
    ],
}


def own(text: str) -> str:
    """A terminal's text without what Perago's table itself draws with: styles, cursor, lines."""
    return re.sub(r"\x1b\[[0-9;?]*[mAKlh]|\r", "", text)


def test_a_run_and_its_inspection_show_a_bodys_output_and_obey_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    shell = Shell(tmp_path)

    shown = {
        "run": shell.on_a_terminal("run", "flow.json", "--tasks", "tasks.py").out,
        "logs": shell.on_a_terminal("logs").out,
        "show": shell.on_a_terminal("show").out,
        "runs": shell.on_a_terminal("runs").out,
    }

    for command, text in shown.items():
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", own(text)), command
        assert CLEAR not in text, command
        assert "why\\x1bc\\rdone: COMPLETED" in own(text), command
    for command in ("run", "logs"):
        assert "loud | a\\x1bcb\n" in own(shown[command])
        assert "loud | 30 %\n" in own(shown[command])
        assert "20 %" not in own(shown[command])
    (log,) = (tmp_path / ".perago" / "runs").glob("*/run.log")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", log.read_text())
    assert [one["text"] for one in shell.data("logs", "--json")][:2] == [
        "a" + CLEAR + RESET + TITLE + "b",
        BAR,
    ]


@pytest.mark.parametrize("nasty", [CLEAR, RESET, TITLE, "\n", "\t", "\x9b2J"], ids=repr)
def test_names_and_messages_control_nothing_and_make_no_line_and_json_has_them_as_they_are(
    tmp_path: Path, nasty: str
) -> None:
    name, message = f"a{nasty}1  b.txt", f"came{nasty}0000 fake"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text("x")
    shell = Shell(tmp_path)
    put = shell.run("put", "songs", "in", "--create", "-m", message)
    assert put.code == 0
    head, first = (one["id"] for one in shell.data("history", "songs", "--json"))

    for shown in (shell.run_here, shell.on_a_terminal):
        for command, lines in (
            (("ls", "songs"), 1),
            (("history", "songs"), 2),
            (("diff", "songs", first, head), 1),
        ):
            text = own(shown(*command).out)
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\t]", text), command
            told = [line for line in text.splitlines() if not line.startswith("lake: ")]
            assert len(told) == lines, (command, text)
    assert [one["path"] for one in shell.data("ls", "songs", "--json")] == [name]


def test_an_object_s_bytes_are_as_they_are_in_a_pipe_and_control_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(f"é one{CLEAR}{TITLE}\n\x1b[31mtwo\n".encode() + b"\xff\x00")
    shell = Shell(tmp_path)
    assert shell.run("put", "songs", "in", "--create").code == 0

    assert shell.run_here("cat", "songs", "a.txt").out.startswith(f"é one{CLEAR}{TITLE}\n")
    text = shell.on_a_terminal("cat", "songs", "a.txt").out
    assert "é one\n\x1b[31mtwo" in text.replace("\r\n", "\n")
    assert CLEAR not in text
    assert TITLE not in text
    assert "\\x00" in text
