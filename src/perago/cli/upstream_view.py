"""Shows where a file or a table comes from, as a tree for people or as JSON, for `perago blame --upstream`.

A commit is shown with its inputs once.  Where it comes up again, the tree refers to the line above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perago.cli import output
from perago.cli.options import format_time
from perago.protocol.metadata import MERGED_BRANCH, SUPERSEDES
from perago.protocol.names import SHORT
from perago.protocol.provenance import Provenance, short_code
from perago.protocol.signing import NOT_SIGNED, author_of, maker_of
from perago.runtime.upstream import Input, Node, Upstream, shown_paths

_WORKFLOW_CHARS = 8
_MESSAGE_CHARS = 60


def show_upstream(repository: str, ref: str, found: Upstream, *, as_json: bool) -> None:
    """Print where a path comes from."""
    if as_json:
        output.data(_as_json(repository, ref, found))
        return
    for line in tree_lines(repository, ref, found):
        output.say(line)


def tree_lines(repository: str, ref: str, found: Upstream) -> Iterator[str]:
    """Yield the lines of the tree."""
    at = "" if found.ref.startswith(ref) else f", at commit {found.ref[:SHORT]}"
    gone = " (deleted)" if found.kind == "deleted" else ""
    yield f"{found.path or '/'}{gone} in {repository}@{ref}{at}"
    yield from _below(found, found.inputs, found.cut, "", set())


def describe_node(node: Node) -> str:
    """Return a node's commit in a few words: who made it, in which run and from which code."""
    commit = node.commit
    return ", ".join(part for part in (_who(node), *_details(node), format_time(commit.created)) if part)


def _below(
    found: Upstream, inputs: Sequence[Input], cut: Sequence[str], indent: str, shown: set[str]
) -> Iterator[str]:
    count = len(inputs) + len(cut)
    for number, one in enumerate(inputs, 1):
        branch, further = ("├─ ", "│  ") if number < count else ("└─ ", "   ")
        node, again = found.nodes[one.commit], one.commit in shown
        shown.add(one.commit)
        own = " (its own earlier output)" if one.own else ""
        about = "see above" if again else describe_node(node)
        yield f"{indent}{branch}{shown_paths(one)}{own}: {one.commit[:SHORT]} {about}"
        if not again:
            yield from _below(found, node.inputs, node.cut, indent + further, shown)
    for number, reason in enumerate(cut, len(inputs) + 1):
        yield f"{indent}{'├─ ' if number < count else '└─ '}… {reason}"


def _who(node: Node) -> str:
    maker = maker_of(node.commit)
    if node.kind == "run" and maker is not None:
        return f"run of workflow {maker.workflow_id[:_WORKFLOW_CHARS]}"
    if maker is not None:
        retry = f" (retry {maker.retry_count})" if maker.retry_count else ""
        return f"step {maker.reference}{retry} of workflow {maker.workflow_id[:_WORKFLOW_CHARS]}"
    author = author_of(node.commit)
    if node.kind != "import":
        return author
    title = node.commit.message.partition("\n")[0][:_MESSAGE_CHARS]
    return f"imported by {author}" if author != NOT_SIGNED else f"imported, {title!r}"


def _details(node: Node) -> Iterator[str]:
    metadata = node.commit.metadata
    if branch := metadata.get(MERGED_BRANCH):
        yield f"which merged {branch}"
    if superseded := metadata.get(SUPERSEDES):
        yield f"supersedes {superseded[:SHORT]}"
    if code := Provenance.of(metadata).code:
        yield f"code {short_code(code)}"


def _as_json(repository: str, ref: str, found: Upstream) -> dict[str, Any]:
    return {
        "repository": repository,
        "ref": ref,
        "commit": found.ref,
        "path": found.path,
        "kind": found.kind,
        "inputs": list(map(_input_json, found.inputs)),
        "nodes": [_node_json(node) for node in found.nodes.values()],
        "cut": list(found.cut),
        "complete": not found.is_cut,
    }


def _input_json(one: Input) -> dict[str, Any]:
    return {"commit": one.commit, "files": one.count, "paths": list(one.paths), "own": one.own}


def _node_json(node: Node) -> dict[str, Any]:
    commit, maker = node.commit, maker_of(node.commit)
    made_with = Provenance.of(commit.metadata)
    return {
        "commit": commit.id,
        "kind": node.kind,
        "by": author_of(commit),
        "created": commit.created,
        "message": commit.message,
        "workflow_id": maker.workflow_id if maker else None,
        "step": maker.reference if maker else None,
        "retry_count": maker.retry_count if maker else None,
        "task_id": maker.task_id if maker else None,
        "input": maker.input_ref if maker else None,
        "supersedes": commit.metadata.get(SUPERSEDES) or None,
        "code": made_with.code or None,
        "packages": made_with.packages or None,
        "runtime": made_with.runtime or None,
        "image": made_with.image or None,
        "inputs": list(map(_input_json, node.inputs)),
        "cut": list(node.cut),
    }
