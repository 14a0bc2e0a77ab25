"""The client of the lakeFS API: the same requests as the official SDK's, and nothing of the SDK behind them."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import lakefs_sdk
import pytest

from perago.errors import LakeRefused, LakeUnavailable
from perago.lake.lakefs import api
from perago.lake.lakefs.api import Request
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from tests.support.servers.tls import answering_with_tls, self_signed

ODD = [
    "main",
    "feature/a b",
    "main@",
    "a~1^2",
    "a%2Fb",
    "grün/日本",
    "x+y&z=1?#;,:$!*'()",
    '<>|\\`{}[]"',
    ".._-~",
    "tab\tand\nline",
]


class Sent(Exception):
    """Return the request that the SDK would send."""

    def __init__(self, method: str, url: str, headers: dict[str, str], body: Any) -> None:
        super().__init__(method, url)
        self.method, self.url, self.headers, self.body = method, url, headers, body


class Recorder:
    """In place of the SDK's connection."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def request(url: str, *, headers: dict[str, str], body: Any = None, **_: object) -> NoReturn:
            raise Sent(name.removesuffix("_request").upper(), url, headers, body)

        return request


Theirs = Callable[[Any, str, str], object]
Ours = Callable[[str, str], Request]
S = lakefs_sdk
CALLS: dict[str, tuple[Ours, Theirs]] = {
    "config": (
        lambda n, p: api.get_config(),
        lambda c, n, p: S.ConfigApi(c).get_config(),
    ),
    "create_repository": (
        lambda n, p: api.create_repository("repo", "s3://at", n),
        lambda c, n, p: S.RepositoriesApi(c).create_repository(
            S.RepositoryCreation(name="repo", storage_namespace="s3://at", default_branch=n)
        ),
    ),
    "list_repositories": (
        lambda n, p: api.list_repositories(after=n, amount=7),
        lambda c, n, p: S.RepositoriesApi(c).list_repositories(after=n, amount=7),
    ),
    "create_branch": (
        lambda n, p: api.create_branch("repo", n, p, hidden=True),
        lambda c, n, p: S.BranchesApi(c).create_branch(
            "repo", S.BranchCreation(name=n, source=p, hidden=True)
        ),
    ),
    "list_branches": (
        lambda n, p: api.list_branches("repo", prefix=n, after="", amount=7),
        lambda c, n, p: S.BranchesApi(c).list_branches(
            "repo", prefix=n, after="", amount=7, show_hidden=True
        ),
    ),
    "delete_branch": (
        lambda n, p: api.delete_branch("repo", n),
        lambda c, n, p: S.BranchesApi(c).delete_branch("repo", n),
    ),
    "hard_reset_branch": (
        lambda n, p: api.hard_reset_branch("repo", n, p),
        lambda c, n, p: S.ExperimentalApi(c).hard_reset_branch("repo", n, ref=p),
    ),
    "diff_branch": (
        lambda n, p: api.diff_branch("repo", n, amount=7, prefix=p, after=p),
        lambda c, n, p: S.BranchesApi(c).diff_branch("repo", n, amount=7, prefix=p, after=p),
    ),
    "is_dirty": (
        lambda n, p: api.diff_branch("repo", n, amount=1),
        lambda c, n, p: S.BranchesApi(c).diff_branch("repo", n, amount=1),
    ),
    "commit": (
        lambda n, p: api.commit("repo", n, p, {"key": p}),
        lambda c, n, p: S.CommitsApi(c).commit("repo", n, S.CommitCreation(message=p, metadata={"key": p})),
    ),
    "merge_into_branch": (
        lambda n, p: api.merge_into_branch("repo", n, p, message=p, metadata={"key": p}, allow_empty=True),
        lambda c, n, p: S.RefsApi(c).merge_into_branch(
            "repo",
            n,
            p,
            merge=S.Merge(message=p, metadata={"key": p}, squash_merge=True, allow_empty=True),
        ),
    ),
    "log_commits": (
        lambda n, p: api.log_commits("repo", n, amount=7, after=p),
        lambda c, n, p: S.RefsApi(c).log_commits("repo", n, amount=7, after=p, first_parent=True),
    ),
    "newest commit": (
        lambda n, p: api.log_commits("repo", f"{n}@", amount=1, limit=True),
        lambda c, n, p: S.RefsApi(c).log_commits("repo", f"{n}@", amount=1, limit=True, first_parent=True),
    ),
    "diff_refs": (
        lambda n, p: api.diff_refs("repo", n, p, prefix=p, after=n, amount=7),
        lambda c, n, p: S.RefsApi(c).diff_refs("repo", n, p, prefix=p, after=n, amount=7, type="two_dot"),
    ),
    "create_tag": (
        lambda n, p: api.create_tag("repo", n, p),
        lambda c, n, p: S.TagsApi(c).create_tag("repo", S.TagCreation(id=n, ref=p)),
    ),
    "list_tags": (
        lambda n, p: api.list_tags("repo", prefix=n, after=p, amount=7),
        lambda c, n, p: S.TagsApi(c).list_tags("repo", prefix=n, after=p, amount=7),
    ),
    "delete_tag": (
        lambda n, p: api.delete_tag("repo", n),
        lambda c, n, p: S.TagsApi(c).delete_tag("repo", n),
    ),
    "list_objects": (
        lambda n, p: api.list_objects("repo", n, prefix=p, after=p, amount=7, delimiter="/", presign=True),
        lambda c, n, p: S.ObjectsApi(c).list_objects(
            "repo", n, prefix=p, after=p, amount=7, delimiter="/", presign=True
        ),
    ),
    "stat_object": (
        lambda n, p: api.stat_object("repo", n, p, user_metadata=True, presign=True),
        lambda c, n, p: S.ObjectsApi(c).stat_object("repo", n, p, user_metadata=True, presign=True),
    ),
    "get_object": (
        lambda n, p: api.get_object("repo", n, p, range="bytes=0-9"),
        lambda c, n, p: S.ObjectsApi(c).get_object("repo", n, p, range="bytes=0-9"),
    ),
    "copy_object": (
        lambda n, p: api.copy_object("repo", n, p, source=n),
        lambda c, n, p: S.ObjectsApi(c).copy_object(
            "repo", n, p, S.ObjectCopyCreation(src_path=p, src_ref=n)
        ),
    ),
    "delete_objects": (
        lambda n, p: api.delete_objects("repo", n, (p, n)),
        lambda c, n, p: S.ObjectsApi(c).delete_objects("repo", n, S.PathList(paths=[p, n])),
    ),
    "get_physical_address": (
        lambda n, p: api.get_physical_address("repo", n, p),
        lambda c, n, p: S.StagingApi(c).get_physical_address("repo", n, p, presign=True),
    ),
    "link_physical_address": (
        lambda n, p: api.link_physical_address("repo", n, p, location=p, checksum="c", size=3),
        lambda c, n, p: S.StagingApi(c).link_physical_address(
            "repo",
            n,
            p,
            S.StagingMetadata(staging=S.StagingLocation(physical_address=p), checksum="c", size_bytes=3),
        ),
    ),
    "create_presign_multipart_upload": (
        lambda n, p: api.create_presign_multipart_upload("repo", n, p),
        lambda c, n, p: S.ExperimentalApi(c).create_presign_multipart_upload("repo", n, p, parts=0),
    ),
    "upload_part": (
        lambda n, p: api.upload_part("repo", n, p, upload_id=n, number=3, location=p),
        lambda c, n, p: S.ExperimentalApi(c).upload_part(
            "repo", n, n, p, 3, S.UploadPartFrom(physical_address=p)
        ),
    ),
    "complete_presign_multipart_upload": (
        lambda n, p: api.complete_presign_multipart_upload(
            "repo", n, p, upload_id=n, location=p, etags=["a", "b"], user_metadata={"k": p}
        ),
        lambda c, n, p: S.ExperimentalApi(c).complete_presign_multipart_upload(
            "repo",
            n,
            n,
            p,
            S.CompletePresignMultipartUpload(
                physical_address=p,
                parts=[S.UploadPart(part_number=1, etag="a"), S.UploadPart(part_number=2, etag="b")],
                user_metadata={"k": p},
            ),
        ),
    ),
    "abort_presign_multipart_upload": (
        lambda n, p: api.abort_presign_multipart_upload("repo", n, p, upload_id=n, location=p),
        lambda c, n, p: S.ExperimentalApi(c).abort_presign_multipart_upload(
            "repo", n, n, p, S.AbortPresignMultipartUpload(physical_address=p)
        ),
    ),
}


def of_the_sdk(call: Theirs, name: str, path: str) -> Sent:
    client = S.ApiClient(S.Configuration(host="http://lake/api/v1", username="key", password="secret"))
    client.rest_client = Recorder()
    with pytest.raises(Sent) as raised:
        call(client, name, path)
    return raised.value


def split(target: str) -> tuple[str, list[str]]:
    """Path, and parameters in any order; the SDK writes a boolean as Python does."""
    path, _, query = target.partition("?")
    spelled = (one.replace("=True", "=true").replace("=False", "=false") for one in query.split("&"))
    return path, sorted(spelled)


def said(body: Any) -> Any:
    """A body without what is false, which is the server's default; the SDK sends those too."""
    return {key: value for key, value in body.items() if value is not False} if body else None


@pytest.mark.parametrize("call", CALLS)
def test_every_call_is_the_sdks_whatever_the_names(call: str) -> None:
    ours, theirs = CALLS[call]
    for name in ODD:
        for path in (*ODD, "a/b.csv"):
            made, sent = ours(name, path), of_the_sdk(theirs, name, path)
            assert made.method == sent.method
            assert split(f"http://lake/api/v1{made.target}") == split(sent.url)
            assert said(made.body) == said(sent.body)
            assert made.headers.items() <= sent.headers.items()


def test_every_call_of_the_module_is_compared() -> None:
    made = {name for name, one in vars(api).items() if callable(one) and name.islower() and name[0] != "_"}
    compared = {*CALLS, "get_config"} - {"config", "is_dirty", "newest commit"}

    # The SDK uploads as a form, from a file; the real servers show that ours arrives.
    assert made - {"dataclass", "field", "quote"} - compared == {"upload_object"}


@pytest.mark.slow
def test_the_adapter_imports_no_sdk_and_a_body_gets_its_own() -> None:
    code = """import multiprocessing, sys
import perago.lake.lakefs.lake, perago.orchestrator.conductor.orchestrator
assert not {"lakefs_sdk", "conductor", "httpx", "requests", "rich"} & sys.modules.keys()
assert multiprocessing.get_start_method(allow_none=True) is None
import lakefs_sdk
assert hasattr(lakefs_sdk.BranchesApi.create_branch, "raw_function")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def read_request(taken: socket.socket) -> bytes:
    """A whole request; its body comes after its headers."""
    data = b""
    while True:
        data += taken.recv(65536)
        head, ended, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if ended and len(body) >= int(length[1] if length else 0):
            return data


@pytest.fixture
def received() -> Iterator[tuple[str, list[bytes], list[bytes]]]:
    """A server's address, what it answers, one connection after the other, and what it has read."""
    answers: list[bytes] = []
    requests: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    taken, _ = server.accept()
                except OSError:
                    return
                with taken:
                    requests.append(read_request(taken))
                    taken.sendall(answers.pop(0))

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", answers, requests
        server.shutdown(socket.SHUT_RDWR)
        serving.join()


def http(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


def client_of(endpoint: str, **options: Any) -> LakeFSClient:
    return LakeFSClient(endpoint, ("key", "sec:ret"), Options(sleep=lambda _: None, **options))


Received = tuple[str, list[bytes], list[bytes]]


def test_keys_and_json_are_sent_and_plain_json_comes_back(received: Received) -> None:
    endpoint, answers, requests = received
    answers.append(http("201 Created", b'{"id": "c1"}'))
    with closing(client_of(endpoint)) as client:
        answer = client.call("commit it", api.commit("repo", "a/b", "grün", {}), repeat=Repeat.UNSENT)

    head, _, body = requests[0].partition(b"\r\n\r\n")
    keys = base64.b64encode(b"key:sec:ret")
    assert answer == {"id": "c1"}
    assert head.startswith(b"POST /api/v1/repositories/repo/branches/a%2Fb/commits HTTP/1.1\r\n")
    assert b"authorization: Basic " + keys in head
    assert b"content-type: application/json" in head.lower()
    assert json.loads(body) == {"message": "grün", "metadata": {}}


def test_an_object_is_sent_as_it_is_and_comes_back_as_bytes(received: Received) -> None:
    endpoint, answers, requests = received
    answers += [http("201 Created", b"{}"), http("200 OK", b"\xff\x00")]
    with closing(client_of(endpoint)) as client:
        put = api.upload_object("repo", "main", "a b", b"\xfe\x01", if_none_match="*")
        client.call("put it", put, repeat=Repeat.UNSENT, status=201)
        got = client.call("get it", api.get_object("repo", "main", "a b"), repeat=Repeat.ALWAYS)

    assert requests[0].endswith(b"\r\n\r\n\xfe\x01")
    assert b"if-none-match: *" in requests[0].lower()
    assert got == b"\xff\x00"


@pytest.mark.parametrize("status", ["200 OK", "202 Accepted"])
def test_another_success_than_lakefs_own_proves_nothing(received: Received, status: str) -> None:
    endpoint, answers, _ = received
    answers.append(http(status, b"<html>fine</html>"))
    with (
        closing(client_of(endpoint)) as client,
        pytest.raises(LakeUnavailable, match=f"status {status[:3]}, and lakeFS would say 204"),
    ):
        client.call("drop it", api.delete_branch("repo", "x"), repeat=Repeat.ALWAYS, status=204)


@pytest.mark.parametrize("body", [b"", b"<html>a page</html>", b'{"id": "\xff"}'])
def test_a_success_that_is_no_json_may_have_happened(received: Received, body: bytes) -> None:
    endpoint, answers, requests = received
    answers.append(http("200 OK", body))
    with (
        closing(client_of(endpoint)) as client,
        pytest.raises(LakeUnavailable, match="is not lakeFS's"),
    ):
        client.call("commit it", api.commit("repo", "main", "m", {}), repeat=Repeat.UNSENT)
    assert len(requests) == 1


def test_a_redirect_is_an_answer_and_not_followed(received: Received) -> None:
    endpoint, answers, requests = received
    answers.append(http("302 Found\r\nLocation: /login", b""))
    with closing(client_of(endpoint)) as client, pytest.raises(LakeUnavailable, match="answered 302"):
        client.call("merge it", api.commit("repo", "main", "m", {}), repeat=Repeat.UNSENT)
    assert len(requests) == 1


def test_an_error_page_in_another_encoding_is_no_refusal(received: Received) -> None:
    endpoint, answers, _ = received
    answers.append(http("502 Bad Gateway", "grün".encode("latin-1")))
    with closing(client_of(endpoint)) as client, pytest.raises(LakeUnavailable, match="answered 502: gr"):
        client.call("merge it", api.commit("repo", "main", "m", {}), repeat=Repeat.UNSENT)


@pytest.mark.parametrize(("ref", "path"), [("main", "\udcff"), ("\udcff", "a")])
def test_a_name_that_cannot_be_sent_is_refused(received: Received, ref: str, path: str) -> None:
    endpoint, _, requests = received
    with closing(client_of(endpoint)) as client, pytest.raises(LakeRefused, match="stat it: UnicodeEncode"):
        client.call("stat it", api.stat_object("repo", ref, path), repeat=Repeat.ALWAYS)
    assert requests == []


def test_a_proxy_of_the_environment_is_not_used(received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, answers, requests = received
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    answers.append(http("200 OK", b"{}"))
    with closing(client_of(endpoint, tries=1)) as client:
        assert client.call("ask it", api.get_config(), repeat=Repeat.ALWAYS) == {}
    assert requests[0].startswith(b"GET /api/v1/config ")


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_is_trusted_as_openssl_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    certificate = self_signed(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with (
        answering_with_tls(certificate, until=b"\r\n\r\n") as url,
        closing(client_of(url, tries=1)) as client,
    ):
        if trusted:
            assert client.call("ask it", api.get_config(), repeat=Repeat.ALWAYS) == {}
            return
        with pytest.raises(LakeUnavailable, match=r"gives no answer: SSLError: .*CERTIFICATE_VERIFY_FAILED"):
            client.call("ask it", api.get_config(), repeat=Repeat.ALWAYS)
