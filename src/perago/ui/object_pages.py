"""The pages about data: a folder in a commit, the preview of an object, its bytes, and two commits side by side.

Bytes from the lake are served in such a way that they cannot run code in the UI.  The browser never displays a
download.  Pictures and framed pages have a separate content security policy, which blocks all scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse

from perago.errors import LakeError, LakeNotFound
from perago.lake.base import Entry
from perago.runtime.blame import Blame
from perago.runtime.lake_lookup import describe_missing_object
from perago.runtime.table_files import format_of, tables_among
from perago.ui.auth import OBJECT_POLICY
from perago.ui.data_source import DataSource
from perago.ui.lake_pages import place
from perago.ui.preview import MOST_SHOWN_WHOLE, PICTURES, Object, Preview, ending_of, preview_of
from perago.ui.rendering import render

ROWS = 200
CHANGES = 200
TABLES = 20


def folder(source: DataSource, request: Request) -> str:
    """Render a folder in a commit."""
    repository, ref = place(source, request)
    commit = source.lake.commit_at(repository, ref)
    prefix = _prefix(request.query_params.get("path", ""))
    after = request.query_params.get("after", "")
    page = source.lake.folder(repository, commit.id, prefix, after=after, limit=ROWS)
    return render(
        "folder.html",
        source=source,
        view="data",
        repository=repository,
        ref=ref,
        commit=commit,
        prefix=prefix,
        crumbs=_crumbs(prefix),
        after=after,
        page=page,
        writer=_last_writer(source, repository, commit.id, prefix) if page.rows else None,
    )


def show_object(source: DataSource, request: Request) -> str:
    """Render the preview of an object."""
    repository, ref = place(source, request)
    commit = source.lake.commit_at(repository, ref)
    one = _object(source, repository, commit.id, request.query_params.get("path", ""))
    above = one.entry.path.rpartition("/")[0]
    return render(
        "object.html",
        source=source,
        view="data",
        repository=repository,
        ref=ref,
        commit=commit,
        entry=one.entry,
        crumbs=_crumbs(f"{above}/" if above else ""),
        look=preview_of(one),
        writer=_last_writer(source, repository, commit.id, one.entry.path),
    )


def compare(source: DataSource, request: Request) -> str:
    """Render two commits side by side: their differences, or one object in both."""
    repository, left = place(source, request)
    right = request.query_params.get("to", "main")
    commits = [source.lake.commit_at(repository, ref) for ref in (left, right)]
    path = request.query_params.get("path", "")
    after = request.query_params.get("after", "")
    values: dict[str, Any] = {"looks": None, "changes": None, "tables": []}
    if path:
        values["looks"] = [_preview_or_none(source, repository, commit.id, path) for commit in commits]
        values["tables"] = [path] if format_of(path) else []
    else:
        values["changes"] = source.lake.changes(
            repository, commits[0].id, commits[1].id, after=after, limit=CHANGES
        )
        values["tables"] = tables_among([one.path for one in values["changes"].rows])[:TABLES]
    return render(
        "compare.html",
        source=source,
        view="data",
        repository=repository,
        refs=(left, right),
        commits=commits,
        path=path,
        after=after,
        **values,
    )


def download(source: DataSource, request: Request) -> StreamingResponse:
    """Return an object's bytes as a download."""
    one = _requested_object(source, request)
    name = one.entry.path.rpartition("/")[2] or "object"
    return _bytes(
        one,
        "application/octet-stream",
        {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='', errors='replace')}"},
    )


def picture(source: DataSource, request: Request) -> StreamingResponse:
    """Return a picture for an <img> element."""
    one = _requested_object(source, request)
    kind = PICTURES.get(ending_of(one.entry.path))
    if kind is None or one.entry.size > MOST_SHOWN_WHOLE:
        raise HTTPException(404, "this object is not shown as a picture")
    return _bytes(one, kind, {})


def frame(source: DataSource, request: Request) -> StreamingResponse:
    """Return an HTML page for a sandboxed iframe with scripts disabled."""
    one = _requested_object(source, request)
    if ending_of(one.entry.path) not in ("html", "htm") or one.entry.size > MOST_SHOWN_WHOLE:
        raise HTTPException(404, "this object is not shown as a page")
    return _bytes(one, "text/html; charset=utf-8", {})


def _bytes(one: Object, media_type: str, headers: dict[str, str]) -> StreamingResponse:
    return StreamingResponse(
        _pieces(one),
        media_type=media_type,
        headers={
            "Content-Security-Policy": OBJECT_POLICY,
            "Content-Length": str(one.entry.size),
            **headers,
        },
    )


def _pieces(one: Object) -> Iterator[bytes]:
    yield from one.lake.read(one.repository, one.commit, one.entry.path)


def _requested_object(source: DataSource, request: Request) -> Object:
    repository, ref = place(source, request)
    return _object(
        source, repository, source.lake.commit_at(repository, ref).id, request.query_params.get("path", "")
    )


def _object(source: DataSource, repository: str, commit: str, path: str) -> Object:
    try:
        return Object(source.lake, repository, commit, source.lake.stat(repository, commit, path))
    except LakeNotFound as missing:
        raise LakeNotFound(describe_missing_object(source.lake, repository, commit[:12], path)) from missing


def _preview_or_none(
    source: DataSource, repository: str, commit: str, path: str
) -> tuple[Entry, Preview] | None:
    try:
        entry = source.lake.stat(repository, commit, path)
    except LakeNotFound:
        return None
    return entry, preview_of(Object(source.lake, repository, commit, entry))


def _last_writer(source: DataSource, repository: str, commit: str, path: str) -> Blame | None:
    """Return the last writer of a path, or None if the lake fails: the page shows the rest without it."""
    try:
        return source.last_writer(repository, commit, path)
    except LakeError:
        return None


def _prefix(path: str) -> str:
    path = path.lstrip("/")
    return path if not path or path.endswith("/") else path + "/"


def _crumbs(prefix: str) -> list[tuple[str, str]]:
    """Return the breadcrumbs of a prefix: the name and path of each folder in it, outermost first."""
    found, at = [], ""
    for name in prefix.split("/")[:-1]:
        at += f"{name}/"
        found.append((name, at))
    return found
