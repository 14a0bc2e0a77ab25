"""The ledger: which publication of a task on a branch still stands.  A = input ref, L = the entry of an attempt.

The branch itself is the ledger.  Each publication is an entry: it says which task made it, with which view, params and
code.  The *key* of an entry is its task, prefix, reads, writes, and the params that the task names in `ledger_key`.

    newest first, at or before A, with this key,
    and valid where it landed                            the attempt's entry
    its writes are the same there and at A               L: it stands
    its writes differ                                    look at the next older one
    none stands                                          rewritten: somebody else changed the task's output
    no entry at all                                      missing: the task has not published here
    neither within `MOST_COMMITS` commits                unknown: treated like rewritten

Why this is sound: at a valid entry, the task's view is exactly what one execution has left.  If its writes are still the
same at A, then A's output is the output of that execution, whatever has happened in between, and only the reads can
differ.  So a revert or a restore of the output leads back to the publication that made it.  L depends on A alone, so
every retry of an attempt finds the same one.

Keys that differ only in their params may write the same paths: then the publication that stands may be one with another
key, B.  The task promises that each key leaves the output of the others alone, so the search goes on at the input of B.

A run that is published as one commit P has an entry for each of its steps whose view at P is the view that the step left.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perago.protocol.metadata import (
    CODE_DIGEST,
    LEDGER_KEY,
    PARAMS_DIGEST,
    PREFIX,
    READS,
    RESULT,
    RUN_COMMIT,
    RUN_ENTRIES,
    TASK,
    VERSION,
    WRITES,
)
from perago.protocol.publication import Commit
from perago.protocol.view import Roots, View

MOST_COMMITS = 10_000
"""The number of commits that are searched for entries."""

IN_RUN = "tag"
"""The value of `perago.run_entries` if a run has too many entries for one commit."""

BY_VERSION = "version"
"""The value of `perago.code_digest` if the task declares a version, which then counts in place of its sources."""

_MOST_ENTRIES = 256
_MOST_BYTES = 64 * 1024
_FIELDS = (TASK, PREFIX, READS, WRITES, LEDGER_KEY, VERSION, PARAMS_DIGEST, CODE_DIGEST)


@dataclass(frozen=True, slots=True)
class EntryKey:
    """The key of an entry.  `reads` and `writes` are object paths: all that the task sees, and all that it may change."""

    task: str
    prefix: str
    reads: Roots
    writes: Roots
    params: str = "{}"
    """The params that the task names in `ledger_key`, as canonical JSON."""

    @classmethod
    def of(cls, task: str, view: View, params: Mapping[str, Any]) -> EntryKey:
        """Return the key of a task with this view.  `params` contains only those that `ledger_key` names."""
        return cls(task, view.prefix, view.roots, view.write_roots, canonical(params))

    @property
    def family(self) -> EntryKey:
        """The key that all keys have in common that differ only in their params."""
        return replace(self, params="")


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one attempt, as its publication records it."""

    key: EntryKey
    version: str
    params: str
    """A digest of all params."""
    code: str
    """A digest of the task's own sources, `BY_VERSION`, or empty if the sources are unknown."""

    def metadata(self) -> dict[str, str]:
        """Return the metadata that makes a publication an entry, without the keys that every publication has."""
        return {
            TASK: self.key.task,
            VERSION: self.version,
            READS: _paths_text(self.key.reads),
            LEDGER_KEY: self.key.params,
            PARAMS_DIGEST: self.params,
            CODE_DIGEST: self.code,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """A publication of a task.  `commit` is on the branch, and contains what the task has left."""

    commit: Commit
    work: Work
    made_by: str
    """The id of the commit that the task itself made: another one than `commit` if a whole run was published at once."""
    result: str | None = field(default=None, repr=False)
    """The recorded result.  None if there is none, or if only the commit `made_by` has it."""

    @property
    def is_of_run(self) -> bool:
        """True if the entry belongs to a run that was published as one commit."""
        return self.made_by != self.commit.id


@dataclass(frozen=True, slots=True)
class Recompute:
    """The work that is done again although nothing has changed: all of it (`full`), or the bodies of some steps."""

    full: bool = False
    steps: frozenset[str] = frozenset()

    def forces(self, reference: str) -> bool:
        """Return whether the body of a step has to run.  The reference of a step in a loop ends with its iteration."""
        step, mark, iteration = reference.rpartition("__")
        return (
            self.full
            or reference in self.steps
            or (bool(mark) and iteration.isdigit() and step in self.steps)
        )

    @property
    def options(self) -> list[str]:
        """The words of the command-line options that say the same."""
        return [
            *(["--full"] if self.full else []),
            *(word for step in sorted(self.steps) for word in ("--force", step)),
        ]

    def __or__(self, other: Recompute) -> Recompute:
        """Return both together."""
        return Recompute(self.full or other.full, self.steps | other.steps)

    def __bool__(self) -> bool:
        """Return whether any work is done again."""
        return self.full or bool(self.steps)


NOTHING_FORCED = Recompute()


def canonical(values: object) -> str:
    """Return JSON values as text that is the same for equal values."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def params_digest(params: object) -> str:
    """Return a digest of an attempt's params, as JSON values."""
    return hashlib.sha256(canonical(params).encode("utf-8", "surrogatepass")).hexdigest()


def entries_of(commit: Commit) -> Iterator[Entry]:
    """Yield the entries in a commit's metadata.  A commit that is not signed, or in another way, has none."""
    if (work := _work_of(commit.metadata)) is not None:
        yield Entry(commit, work, commit.id, commit.metadata.get(RESULT))
    for fields, made_by in _listed(commit.metadata.get(RUN_ENTRIES, "")):
        if (work := _work_of(fields)) is not None:
            yield Entry(commit, work, made_by)


def run_with_entries(commit: Commit) -> str | None:
    """Return the last commit of the run whose own commits have the entries of this one, or None."""
    return commit.metadata.get(RUN_COMMIT) if commit.metadata.get(RUN_ENTRIES) == IN_RUN else None


def newest_entries(commits: Sequence[Commit]) -> dict[EntryKey, Entry]:
    """Return the newest entry of each key among these commits, which are ordered newest first."""
    found: dict[EntryKey, Entry] = {}
    for commit in commits:
        for entry in entries_of(commit):
            found.setdefault(entry.work.key, entry)
    return found


def run_entries_text(entries: Sequence[Entry]) -> str:
    """Return the entries of a run as the metadata of its publication."""
    if len(entries) > _MOST_ENTRIES:
        return IN_RUN
    listed = [
        [entry.made_by, *({**entry.work.metadata(), **_paths(entry.work.key)}[name] for name in _FIELDS)]
        for entry in entries
    ]
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False)
    return text if len(text.encode("utf-8", "surrogatepass")) <= _MOST_BYTES else IN_RUN


def _listed(text: str) -> Iterator[tuple[Mapping[str, str], str]]:
    """Yield the fields of each entry of a run, and the commit of its step."""
    if not text or text == IN_RUN:
        return
    try:
        for made_by, *values in json.loads(text):
            yield dict(zip(_FIELDS, map(str, values), strict=True)), str(made_by)
    except (ValueError, TypeError):
        return  # not written by Perago


def _work_of(metadata: Mapping[str, str]) -> Work | None:
    try:
        key = EntryKey(
            metadata[TASK],
            _prefix(metadata[PREFIX]),
            Roots(json.loads(metadata[READS])),
            Roots(json.loads(metadata[WRITES])),
            metadata[LEDGER_KEY],
        )
        return Work(key, metadata[VERSION], metadata[PARAMS_DIGEST], metadata[CODE_DIGEST])
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _prefix(text: str) -> str:
    """Return the prefix of object names, given the prefix as metadata has it."""
    return f"{text[1:]}/" if text != "/" else ""


def _paths(key: EntryKey) -> dict[str, str]:
    return {PREFIX: "/" + key.prefix.rstrip("/"), WRITES: _paths_text(key.writes)}


def _paths_text(paths: Roots) -> str:
    return json.dumps(paths, ensure_ascii=False)
