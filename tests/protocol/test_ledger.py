"""The ledger's entries, as commits say them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from perago.protocol import ledger, metadata
from perago.protocol.attempt import Attempt
from perago.protocol.ledger import (
    IN_RUN,
    NOTHING_FORCED,
    Entry,
    EntryKey,
    Recompute,
    Work,
    entries_of,
    newest_entries,
    params_digest,
    run_entries_text,
    run_with_entries,
)
from perago.protocol.publication import Commit, StagedWorkspace, Workspace
from perago.protocol.signing import RunSummary, Signature
from perago.protocol.view import Roots, View

KEY = EntryKey.of("clean", View("data/", ("raw",), ("out",)), {"source": "ä"})
WORK = Work(KEY, "1", "params", "code")
ATTEMPT = Attempt("wf", "task", "step", "clean", retry_count=0, seq=1, iteration=0)
WORKSPACE = Workspace("songs", "main", "A", "data/", View("data/", ("raw",), ("out",)))


def publication(work: Work | None = WORK, run: RunSummary | None = None) -> dict[str, str]:
    signature = Signature(ATTEMPT, "e1", WORKSPACE, "digest", run, work)
    return signature.publication(
        StagedWorkspace("songs", "s", "C"), expected_head="A", supersedes="", fence="soft"
    )


def commit(name: str, signed: dict[str, str]) -> Commit:
    return Commit(name, ("A",), metadata=signed)


@pytest.mark.parametrize("prefix", ["", "data/", "a/b/"])
def test_a_publication_is_an_entry_and_reads_back_as_it_was(prefix: str) -> None:
    view = View(prefix, ("raw", "b"), ("out",))
    work = Work(EntryKey.of("clean", view, {}), "2", "params", "code")
    signature = Signature(ATTEMPT, "e1", Workspace("songs", "main", "A", prefix, view), "digest", work=work)
    signed = signature.publication(
        StagedWorkspace("songs", "s", "C"), expected_head="A", supersedes="", fence="soft"
    )

    [entry] = entries_of(commit("L", {**signed, metadata.RESULT: "{}"}))

    assert entry.work == work
    assert (entry.made_by, entry.result, entry.is_of_run) == ("L", "{}", False)


def test_after_a_relocation_the_staging_commit_is_the_entry() -> None:
    signature = Signature(ATTEMPT, "e1", WORKSPACE, "digest", work=WORK)

    [entry] = entries_of(commit("C", signature.staging("s", base="A", fence="soft", recorded='{"a":1}')))

    assert (entry.work, entry.result) == (WORK, '{"a":1}')


@pytest.mark.parametrize("missing", [metadata.TASK, metadata.READS, metadata.WRITES, metadata.CODE_DIGEST])
def test_a_commit_without_the_metadata_is_no_entry(missing: str) -> None:
    signed = publication()
    del signed[missing]

    assert list(entries_of(commit("L", signed))) == []
    assert list(entries_of(commit("L", {}))) == []


@pytest.mark.parametrize("text", ["no json", "1", "{}", '[["a"]]', "[1]"])
def test_metadata_of_somebody_else_is_no_entry(text: str) -> None:
    assert list(entries_of(commit("L", {metadata.RUN_ENTRIES: text}))) == []
    assert list(entries_of(commit("L", {**publication(), metadata.READS: text[:-1]}))) == []


def test_an_entry_of_a_run_with_strange_fields_is_none() -> None:
    strange = json.dumps([["S", "clean", "/", "no json", "[]", "{}", "1", "params", "code"]])

    assert list(entries_of(commit("P", {metadata.RUN_ENTRIES: strange}))) == []


def test_keys_differ_by_each_of_their_parts() -> None:
    other = [
        EntryKey.of("other", View("data/", ("raw",), ("out",)), {"source": "ä"}),
        EntryKey.of("clean", View("", ("raw",), ("out",)), {"source": "ä"}),
        EntryKey.of("clean", View("data/", ("raw2",), ("out",)), {"source": "ä"}),
        EntryKey.of("clean", View("data/", ("raw",), ("out2",)), {"source": "ä"}),
        EntryKey.of("clean", View("data/", ("raw",), ("out",)), {"source": "b"}),
    ]

    assert len({KEY, *other}) == 6
    assert EntryKey.of("clean", View("data/", ("out", "raw"), ("out",)), {"source": "ä"}) == KEY


def test_keys_that_differ_only_in_their_params_are_one_family() -> None:
    other = EntryKey.of("clean", View("data/", ("raw",), ("out",)), {"source": "b"})

    assert KEY.family == other.family != KEY
    assert EntryKey.of("clean", View("data/", ("raw",), ("out2",)), {}).family != KEY.family


def test_the_order_of_params_does_not_count() -> None:
    assert params_digest({"a": 1, "b": [1]}) == params_digest({"b": [1], "a": 1})
    assert params_digest({"a": 1}) != params_digest({"a": 2})


def entries(count: int) -> list[Entry]:
    found = []
    for number in range(count):
        key = dataclasses.replace(KEY, task=f"clean{number}")
        found.append(Entry(commit(f"S{number}", {}), Work(key, "1", "params", "code"), f"S{number}"))
    return found


def test_the_publication_of_a_run_has_the_entries_of_its_steps() -> None:
    run = RunSummary("R", "[]", run_entries_text(entries(3)))

    found = list(entries_of(commit("P", publication(None, run))))

    assert [entry.work for entry in found] == [entry.work for entry in entries(3)]
    assert [entry.made_by for entry in found] == ["S0", "S1", "S2"]
    assert all(entry.is_of_run and entry.commit.id == "P" and entry.result is None for entry in found)
    assert run_with_entries(commit("P", publication(None, run))) is None


def test_a_run_with_too_many_entries_keeps_them_with_its_own_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_entries_text(entries(256)) != IN_RUN
    assert run_entries_text(entries(257)) == IN_RUN
    monkeypatch.setattr(ledger, "_MOST_BYTES", 100)
    assert run_entries_text(entries(1)) == IN_RUN

    published = commit("P", publication(None, RunSummary("R", "[]", IN_RUN)))
    assert list(entries_of(published)) == []
    assert run_with_entries(published) == "R"


def test_the_newest_entry_of_each_key_counts() -> None:
    newer, older = commit("L2", publication()), commit("L1", publication())

    found = newest_entries([newer, commit("x", {}), older])

    assert {key: entry.commit.id for key, entry in found.items()} == {KEY: "L2"}


def test_a_step_is_forced_by_its_reference_in_every_iteration() -> None:
    forced = Recompute(steps=frozenset({"clean"}))

    assert forced.forces("clean")
    assert forced.forces("clean__2")
    assert not forced.forces("count")
    assert Recompute(full=True).forces("count")
    assert not NOTHING_FORCED.forces("clean")


def test_roots_of_a_key_are_sorted() -> None:
    assert KEY.reads == Roots(["data/out", "data/raw"])
    assert KEY.writes == ("data/out",)
