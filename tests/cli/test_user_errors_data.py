"""User errors about data, run as commands: one line each, and the lake is unchanged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import HEAD
from tests.support.faults.disks import no_file_above
from tests.support.processes.command_errors import SOURCE, USAGE, CommandError, check_reported
from tests.support.processes.commands import Shell
from tests.support.tasks.workflows import simple, workflow

TASKS = """
@task(name="clean", owner_email="a@b.c", workspace=WorkspaceSpec(prefix="/raw", pre=[require_file("events.csv")]))
def clean(workspace: Path, params: Params) -> Result: ...


@task(name="lost", owner_email="a@b.c", workspace=WorkspaceSpec(prefix="/rwa", pre=[require_file("events.csv")]))
def lost(workspace: Path, params: Params) -> Result: ...
"""
RUN = ("run", "flow.json", "--tasks", "tasks.py")
OTHER = "rename one of them, or let --delete remove what the folder does not have"


def importing(folder: str, repository: str = "other") -> tuple[str, ...]:
    return (*RUN, "--import", f"{repository}={folder}", "--workspace", repository)


ERRORS = {
    "a column that no param has": CommandError(
        ("map", "tasks.py:clean", "rows.csv", "-o", "out.csv"),
        "the table does not fit the params of task 'clean'",
        "column stm: is not a param",
        "did you mean 'stem'?",
    ),
    "outcomes in a folder that is not there": CommandError(
        ("map", "tasks.py:clean", "whole.csv", "-o", "nowhere/out.csv"),
        "nowhere/out.csv.map",
        "cannot be written: No such file or directory",
        "name a folder that is there and that you may write to with -o",
    ),
    # what is looked for
    "a wrong prefix": CommandError(
        ("ls", "events", "main", "rwa"),
        "at main of repository 'events'",
        "there is nothing below 'rwa/'",
        "folders there: raw/, ref/; did you mean 'raw/'?",
    ),
    "an unknown repository": CommandError(
        ("history", "evnts"), "'evnts'", "there is no repository", "there are: events; did you mean 'events'?"
    ),
    "an unknown branch": CommandError(
        ("history", "events", "mian"),
        "repository 'events'",
        "has no branch, tag or commit 'mian'",
        "did you mean 'main'?",
    ),
    "an unknown ref to compare with": CommandError(
        ("diff", "events", "main", "0000"),
        "repository 'events'",
        "has no branch, tag or commit '0000'",
        "there are: main",
    ),
    "an unknown object": CommandError(
        ("cat", "events", "raw/b.csv"),
        "at main of repository 'events'",
        "there is no object 'raw/b.csv'",
        "there are: raw/a.csv; did you mean 'raw/a.csv'?",
    ),
    "a folder where an object must be": CommandError(
        ("cat", "events", "raw"), "at main of repository 'events'", "'raw' is a folder", "it holds raw/a.csv"
    ),
    # put
    "no folder to put": CommandError(
        ("put", "events", "dta"), "dta", "there is no such file or folder", "did you mean 'data'?"
    ),
    "a file beside a folder": CommandError(
        ("put", "events", "flow.json", "data"), "cannot put data", "it is a folder", "or only files"
    ),
    "a file where a folder must be": CommandError(
        ("put", "events", "flow.json", "--delete"), "--delete", "what a folder does not have", "put a folder"
    ),
    "an empty folder": CommandError(
        ("put", "events", "empty"), "empty", "it holds no files", "give a folder with files"
    ),
    "a symlink": CommandError(
        ("put", "events", "links"),
        "cannot put links",
        "does not support symlinks: link",
        "put a file in its place",
    ),
    "a name that is not UTF-8": CommandError(
        ("put", "events", "latin"),
        "cannot put latin",
        "has a name that is not valid UTF-8",
        "rename the file",
    ),
    "lakeFS's actions": CommandError(
        ("put", "events", "actions"),
        "'_lakefs_actions/a.yaml'",
        "is among lakeFS's actions",
        "use `perago fence` or lakectl for those",
    ),
    "lakeFS's actions by the prefix": CommandError(
        ("put", "events", "data", "--prefix", "_lakefs_actions"),
        "--prefix '_lakefs_actions'",
        "it is where lakeFS keeps its actions",
        "give one such as raw/2026",
    ),
    "a file where the branch has a folder": CommandError(
        ("put", "events", "file-for-folder"), "'main'", "cannot put 'raw': it is a folder", OTHER
    ),
    "a folder where the branch has a file": CommandError(
        ("put", "events", "folder-for-file"), "'main'", "'ref/c.txt' is a file", OTHER
    ),
    "put into no repository": CommandError(
        ("put", "evnts", "data"),
        "'evnts'",
        "there is no repository",
        "did you mean 'events'? `perago put evnts data --create` makes it",
    ),
    "put onto no branch": CommandError(
        ("put", "events@dev", "data"),
        "repository 'events'",
        "has no branch, tag or commit 'dev'",
        "`perago branch events dev` makes it",
    ),
    "a name that no repository may have": CommandError(
        ("put", "My_Events", "data", "--create"),
        "'My_Events'",
        "is not allowed",
        "3 to 63 lower-case letters, digits and '-'",
    ),
    # branches
    "a branch that exists": CommandError(
        ("branch", "events", "main"),
        "repository 'events'",
        "has a branch 'main' already",
        "choose another name",
    ),
    "a branch from nowhere": CommandError(
        ("branch", "events", "dev", "mian"),
        "'events'",
        "has no branch, tag or commit 'mian'",
        "did you mean 'main'?",
    ),
    "a branch with a name of ours": CommandError(
        ("branch", "events", "perago-x"), "'perago-x'", "perago-* is reserved for Perago", "choose another"
    ),
    "a branch to merge that is not there": CommandError(
        ("merge", "events", "mian", "main"),
        "'events'",
        "has no branch, tag or commit",
        "did you mean 'main'?",
    ),
    "a merge into a branch of ours": CommandError(
        ("merge", "events", "main", "perago-x"), "'perago-x'", "one of Perago's own branches", "perago sweep"
    ),
    "a path to restore that is not there": CommandError(
        ("restore", "events", "main", "rwa/a.csv"),
        "'rwa/a.csv'",
        "there is no object",
        "did you mean 'raw/'?",
    ),
    "actions to restore": CommandError(
        ("restore", "events", "main", "_lakefs_actions/x"),
        "cannot restore",
        "lakeFS's actions",
        "perago fence",
    ),
    "a path to blame that never was": CommandError(
        ("blame", "events", "rwa/a.csv"), "'rwa/a.csv'", "there is no object", "did you mean 'raw/'?"
    ),
    "the default branch to delete": CommandError(
        ("branch", "events", "main", "--delete", "--yes"), "'main'", "default branch", "cannot be deleted"
    ),
    "a branch in the repository's name": CommandError(
        ("restore", "events@main", "main"),
        "'REPO'",
        "give the repository 'events' alone, and 'main' in its own place",
        "perago restore --help",
        code=USAGE,
    ),
    "a branch to delete that is not named": CommandError(
        ("branch", "events", "--delete"), "--delete", "needs the NAME", "perago branch --help", code=2
    ),
    "a garbage collection on lakeFS": CommandError(
        ("gc", "--remote"), "for the embedded lake", "lakeFS collects its garbage itself", "add --local"
    ),
    # runs
    "a repository that exists, to import": CommandError(
        importing("data", "events"), "'events'", "exists already", "leave out --import to use it"
    ),
    "a file to import": CommandError(
        importing("flow.json"),
        "cannot import flow.json",
        "it is not a folder",
        "give the folder that holds it",
    ),
    "no folder to import": CommandError(
        importing("dat"), "cannot import dat", "there is no such folder", "did you mean 'data'?"
    ),
    "a symlink to import": CommandError(
        importing("links"),
        "cannot import links",
        "does not support symlinks: link",
        "put a file in its place",
    ),
    "a name that is not UTF-8 to import": CommandError(
        importing("latin"), "'na\\udcffme.csv'", "is not valid Unicode", "rename the file"
    ),
    "an import without its name": CommandError(
        (*RUN, "--import", "data"), "--import", "not 'data'", "takes REPO=DIR", code=USAGE
    ),
    "a workspace on no branch": CommandError(
        (*RUN, "--workspace", "events@dev"),
        "repository 'events'",
        "has no branch, tag or commit 'dev'",
        "there are: main",
    ),
    "a branch for a commit": CommandError(
        (
            *RUN,
            "--input",
            json.dumps(
                {"workspace": {"repository": "events", "branch": "main", "ref": "main", "ref_type": "branch"}}
            ),
        ),
        "step 'one': workspace.ref_type",
        "must be 'commit', not 'branch'",
        "--workspace REPO[@BRANCH] gives a whole one",
    ),
}
AS_PROCESSES = (
    "a wrong prefix",
    "a name that is not UTF-8",
    "put onto no branch",
    "a repository that exists, to import",
)
FAILING = {
    "a missing file of a pre-check": (
        "clean",
        ("--workspace", "events"),
        "pre check require_file('events.csv') failed: there is no such file; the workspace holds a.csv",
    ),
    "a prefix that is not there": (
        "lost",
        ("--workspace", "events"),
        "folders there: raw/, ref/; did you mean 'raw/'?",
    ),
    "the name of a branch as the commit": (
        "clean",
        ("--input", '{"workspace": {"repository": "events", "branch": "main", "ref": "main"}}'),
        "workspace.ref 'main' is a branch, a tag or an expression, not a commit id",
    ),
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A folder with all kinds of data, and a lake that no error changes."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "tasks.py").write_text(HEAD + TASKS)
    write_flow(folder, "clean")
    for name in ("data/raw/a.csv", "data/ref/c.txt", "file-for-folder/raw", "folder-for-file/ref/c.txt/x"):
        write(folder / name)
    write(folder / "actions/_lakefs_actions/a.yaml")
    (folder / "rows.csv").write_text("repository,stm\nevents,x\n")
    (folder / "whole.csv").write_text("repository,stem\nevents,x\n")
    (folder / "empty").mkdir()
    write(folder / "links/a.csv")
    (folder / "links/link").symlink_to("a.csv")
    (folder / "latin").mkdir()
    with open(os.fsencode(folder / "latin") + b"/na\xffme.csv", "wb"):
        pass
    shell = Shell(folder)
    assert shell.run_here("put", "events", "data", "--create").code == 0
    before = history(shell)
    yield shell
    assert history(shell) == before, "a mistake changes nothing"


def write(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x\n")


def write_flow(folder: Path, task: str) -> None:
    given = {"workspace": "${workflow.input.workspace}", "params": {"stem": "x"}}
    (folder / "flow.json").write_text(json.dumps(workflow(simple("one", name=task, inputParameters=given))))


def history(shell: Shell) -> str:
    return shell.run_here("history", "events", "--json").out


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_error_about_data_is_one_line_with_cause_place_and_remedy(
    case: CommandError, shell: Shell
) -> None:
    check_reported(case, shell.run_here(*case.command), shell.folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_PROCESSES)
def test_the_same_line_comes_from_the_command_itself(name: str, shell: Shell) -> None:
    check_reported(ERRORS[name], shell.run(*ERRORS[name].command), shell.folder)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "options", "reason"), FAILING.values(), ids=FAILING)
def test_data_that_a_step_cannot_work_on_is_told_by_the_step_and_its_reason(
    task: str, options: tuple[str, ...], reason: str, shell: Shell
) -> None:
    write_flow(shell.folder, task)

    said = shell.run(*RUN, *options)

    write_flow(shell.folder, "clean")
    assert said.code == 1
    assert [line for line in said.out.splitlines() if line.startswith("one ") and "FAILED" in line]
    assert reason in said.out
    assert "Traceback" not in said.out + said.err
    assert SOURCE not in said.out + said.err


def test_a_disk_that_is_full_is_one_line_and_nothing_is_put(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "large.bin").write_bytes(bytes(1 << 20))
    with no_file_above(600_000):
        said = shell.run_here("put", "events", str(tmp_path))

    check_reported(
        CommandError((), "{folder}/.perago/lake", "File too large", "make room on the disk of the lake"),
        said,
        shell.folder,
    )
