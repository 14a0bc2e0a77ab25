"""Checks an embedded lake: every ref, commit, tree and object must exist and match its name."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from perago.lake.local.blobs import Objects
from perago.lake.local.refs import commit_id
from perago.lake.local.trees import decode, node_id


def problems(db: sqlite3.Connection, objects: Objects) -> list[str]:
    """Return one sentence per problem.  The list is empty if the lake is intact."""
    wanted: dict[str, tuple[int, str]] = {}
    return [*_refs(db), *_commits(db), *_nodes(db, wanted), *_objects(db, objects, wanted)]


def _refs(db: sqlite3.Connection) -> Iterator[str]:
    for kind, table in (("branch", "branches"), ("tag", "tags")):
        rows = db.execute(
            f"SELECT ref.repository, ref.name, ref.head FROM {table} ref "
            "LEFT JOIN commits ON commits.repository = ref.repository AND commits.id = ref.head "
            "WHERE commits.id IS NULL"
        )
        for repository, name, head in rows:
            yield f"{kind} {name!r} of repository {_name(db, repository)} is at commit {head}, which is missing"


def _commits(db: sqlite3.Connection) -> Iterator[str]:
    known = set(db.execute("SELECT repository, id FROM commits"))
    nodes = {name for (name,) in db.execute("SELECT id FROM nodes")}
    columns = "repository, id, parents, tree, message, metadata, created_ns"
    for repository, commit, *content in db.execute(f"SELECT {columns} FROM commits"):
        parents, tree = content[:2]
        if commit_id(*content) != commit:
            yield f"commit {commit} does not hold what its id says"
        if tree not in nodes:
            yield f"commit {commit} has the tree {tree}, which is missing"
        for parent in json.loads(parents):
            if (repository, parent) not in known:
                yield f"commit {commit} has the parent {parent}, which is missing"


def _nodes(db: sqlite3.Connection, wanted: dict[str, tuple[int, str]]) -> Iterator[str]:
    """Yield the problems in the trees.  Adds the size and one path of every object in them to `wanted`."""
    known = {name for (name,) in db.execute("SELECT id FROM nodes")}
    for name, body in db.execute("SELECT id, body FROM nodes"):
        if node_id(body) != name:
            yield f"tree node {name} does not hold what its id says"
            continue
        node = decode(body)
        if node.level == 0:
            for path, (size, checksum) in zip(node.keys, node.values, strict=True):
                wanted[checksum] = (size, path)
            continue
        for _, child in node.values:
            if child not in known:
                yield f"tree node {name} has the child {child}, which is missing"


def _objects(db: sqlite3.Connection, objects: Objects, wanted: dict[str, tuple[int, str]]) -> Iterator[str]:
    """Yield the problems with the objects that the trees refer to, and with uncommitted objects."""
    for path, size, checksum in db.execute(
        "SELECT path, size, checksum FROM staged WHERE checksum IS NOT NULL"
    ):
        wanted[checksum] = (size, path)
    for checksum, (size, where) in wanted.items():
        problem = objects.problem(checksum, size)
        if problem is not None:
            yield f"object {checksum} ({where}) {problem}"


def _name(db: sqlite3.Connection, repository: int) -> str:
    row = db.execute("SELECT name FROM repositories WHERE id = ?", (repository,)).fetchone()
    return repr(row[0]) if row else f"number {repository}, which is missing too"
