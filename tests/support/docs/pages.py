"""A page of the documentation, followed as by a reader: its files are written, its commands run, their output compared.

    ```python tasks.py     creates a file, or appends to one that the page has created
    ```diff tasks.py       changes it: the lines with `-` become those with `+`
    ```console             lines after `$ ` are commands; the lines below are all of their output

All commands of a page run in one shell.  Any other kind of block is an error, and so is a command that fails, unless the
page then shows its exit code with `echo $?`.  `doc_output.py` compares the output.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.docs.doc_output import Command, compare

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "--- what a page ran:"
SERVERS = ("PERAGO_", "LAKECTL_", "CONDUCTOR_", "PYTEST_")


@dataclass(frozen=True, slots=True)
class Written:
    """A file as it is after a block."""

    name: str
    text: str


def steps(text: str) -> Iterator[Written | Command]:
    """Yield what a reader of the page does, in order."""
    files: dict[str, str] = {}
    blocks = BLOCK.findall(text)
    assert len(re.findall(r"^\s*```", text, re.MULTILINE)) == 2 * len(blocks), (
        "a block that is not understood"
    )
    for kind, name, body in blocks:
        if kind == "console" and not name:
            yield from _commands(body)
            continue
        assert name, f"a block of {kind or 'no kind'} that nothing runs:\n{body}"
        files[name] = _changed(files[name], body) if kind == "diff" else files.get(name, "") + body
        yield Written(name, files[name])


def follow(text: str, folder: Path, environment: Mapping[str, str], seconds: float = 900) -> int:
    """Do what the page says in a folder; returns the number of commands, whose output must be as shown."""
    todo = list(steps(text))
    output = _run(_script(todo, folder), folder, environment, seconds)
    printed = _by_command(output)
    commands = [step for step in todo if isinstance(step, Command)]
    for number, command in enumerate(commands):
        actual, code = printed.get(number, ("", None))
        last = number + 1 == len(commands)
        accepted = code == 0 or (code is not None and not last and commands[number + 1].line == "echo $?")
        assert accepted, f"`{command.line}` ended with {code}:\n{actual}"
        compare(command, actual)
    return len(commands)


def reader(programs: Path) -> dict[str, str]:
    """Return the environment of a reader without servers, with a folder of programs first on PATH."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SERVERS)}
    return environment | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}


def substituted(text: str, names: Mapping[str, str]) -> str:
    """Return the page with other names: names on shared servers have a random part."""
    for name, other in names.items():
        assert name in text, f"the page does not have {name!r}"
        text = text.replace(name, other)
    return text


def section(text: str, heading: str) -> str:
    """Return the part of a page below a heading, up to the next one of its level."""
    level = heading.split(" ")[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^{level} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no heading {heading!r}"
    return found[1]


def only_files(text: str) -> str:
    """Return the page without its commands."""
    return re.sub(r"^```console\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _commands(block: str) -> Iterator[Command]:
    before, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not before, f"output before the first command: {before}"
    for part in parts:
        line, *shown = part.splitlines()
        while line.endswith("\\"):
            line, shown = f"{line}\n{shown[0]}", shown[1:]
        yield Command(line, tuple(shown))


def _changed(text: str, difference: str) -> str:
    """Apply a diff that a page shows; its old lines must occur exactly once."""
    lines = difference.splitlines(keepends=True)
    assert all(line[0] in " -+" for line in lines), f"a line that is neither old nor new:\n{difference}"
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    assert text.count(old) == 1, f"these lines are there {text.count(old)} times:\n{old}"
    return text.replace(old, new)


def _script(todo: list[Written | Command], folder: Path) -> str:
    """Return one script for the whole page; files are prepared beside the folder until they are needed."""
    aside = Path(tempfile.mkdtemp(dir=folder.parent))
    parts = ["exec 2>&1 </dev/null"]
    number = 0
    for at, step in enumerate(todo):
        if isinstance(step, Written):
            (aside / str(at)).write_text(step.text)
            file = shlex.quote(str(folder / step.name))
            parts.append(f'mkdir -p "$(dirname {file})" && cp {aside / str(at)} {file}')
            continue
        following = todo[at + 1] if at + 1 < len(todo) else None
        shows_code = isinstance(following, Command) and following.line == "echo $?"
        parts += [f"printf '%s\\n' '{MARK} {number}'", "(exit ${code:-0})", step.line, "code=$?"]
        parts += [f"printf '\\n%s\\n' \"{MARK} {number} $code\""]
        parts += [] if shows_code else ["[ $code = 0 ] || exit 0"]
        number += 1
    return "\n".join(parts)


def _run(script: str, folder: Path, environment: Mapping[str, str], seconds: float) -> str:
    """Run the script and return its output.  Processes that it leaves behind are killed."""
    with tempfile.TemporaryFile("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env=environment, stdout=output, start_new_session=True
        )
        try:
            shell.wait(timeout=seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        return output.read()


def _by_command(output: str) -> dict[int, tuple[str, int]]:
    ran = re.finditer(rf"^{MARK} (\d+)\n(.*?)\n{MARK} \1 (\d+)$", output, re.MULTILINE | re.DOTALL)
    return {int(one[1]): (one[2], int(one[3])) for one in ran}
