"""The names in commit metadata: one place has them, docs list them, and a publication carries them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import perago
from perago.protocol import metadata
from perago.protocol.attempt import Attempt
from perago.protocol.ledger import EntryKey, Work
from perago.protocol.provenance import Provenance
from perago.protocol.publication import StagedWorkspace, Workspace
from perago.protocol.signing import Signature
from perago.protocol.view import View
from tests.support.docs.sources import parsed

SRC = Path(perago.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "publication.md"
NAMES = {value for name, value in vars(metadata).items() if name.isupper()}


def test_docs_list_every_name() -> None:
    [paragraph] = [part for part in DOCS.read_text().split("\n\n") if "`perago.phase`" in part]

    assert set(re.findall(r"`(perago\.\w+)`", paragraph)) == NAMES


def test_a_publication_carries_every_name_but_the_recorded_result() -> None:
    attempt = Attempt("wf", "task", "step", "make", retry_count=0, seq=1, iteration=0)
    work = Work(EntryKey.of("make", View("data/"), {}), "1", "params", "code")
    made_with = Provenance("code", "packages", "runtime", "image")
    workspace = Workspace("songs", "main", "A", "data/")
    signature = Signature(attempt, "e1", workspace, "digest", work=work, made_with=made_with)

    said = signature.publication(
        StagedWorkspace("songs", "s", "C"), expected_head="A", supersedes="", fence="hard"
    )

    only_rebased = {metadata.REBASED_OVER, metadata.STAGING_BASE, metadata.PUBLISH_TRIES}
    only_runs = {metadata.RUN_COMMIT, metadata.RUN_STEPS, metadata.RUN_ENTRIES}
    only_commands = {metadata.MERGED_BRANCH, metadata.MERGED_COMMIT, metadata.RESTORED_COMMIT}
    assert set(said) == NAMES - {metadata.RESULT} - only_rebased - only_runs - only_commands


def test_no_other_module_spells_a_name_itself() -> None:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        if path == Path(metadata.__file__):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Constant) and node.value in NAMES:
                found.append(f"{path.relative_to(SRC)}:{node.lineno}: {node.value}")

    assert found == []
