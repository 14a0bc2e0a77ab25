"""Objects that other tools put into a production lakeFS: read, verified as far as that goes, cached, left as they are."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import S3Store

from perago.lake.base import Download, Entry
from perago.lake.lakefs.checksums import fits_counted_parts
from tests.conftest import LakefsServer, ObjectStore, ProductionServers, fresh_repository
from tests.support.servers.lakefs import WITHOUT_WAITING, lakefs_lake
from tests.support.worlds.world import World, make_task, published_ref

MIB = 1024 * 1024
BIG = bytes(range(256)) * (13 * 4 * 1024)
"""13 MiB."""


def bucket(store: ObjectStore) -> S3Store:
    """The store as another tool sees it."""
    return another_client(store.bucket, store)


def another_client(bucket: str, server: ObjectStore | LakefsServer) -> S3Store:
    """Another tool's access to a bucket of the store, or to a repository through the gateway."""
    return S3Store(
        bucket,
        endpoint=server.url,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )


@pytest.fixture(params=["presigned", "gateway"])
def world(
    request: pytest.FixtureRequest, production_servers: ProductionServers, tmp_path: Path
) -> Iterator[World]:
    """An empty repository, whichever way bytes go."""
    server = production_servers.lakefs
    with (
        fresh_repository(server) as repository,
        lakefs_lake(server, tmp_path / "cache", transfer=request.param, **WITHOUT_WAITING) as lake,
    ):
        made = World(lake, repository, tmp_path)
        yield made
        made.orchestrator.close()


@pytest.fixture
def elsewhere(production_servers: ProductionServers) -> str:
    """A folder of the store outside of every repository, with objects as other tools leave them."""
    folder = f"elsewhere-{uuid.uuid4().hex[:12]}"
    store = bucket(production_servers.store)
    store.put(f"{folder}/plain.txt", b"plain", use_multipart=False, attributes={"owner": "ann"})
    store.put(f"{folder}/deep/one-part.bin", b"one part", use_multipart=True, chunk_size=5 * MIB)
    store.put(f"{folder}/parts-of-6.bin", BIG, use_multipart=True, chunk_size=6 * MIB)
    return f"s3://{production_servers.store.bucket}/{folder}/"


WANTED = {"data/plain.txt": b"plain", "data/deep/one-part.bin": b"one part", "data/parts-of-6.bin": BIG}


def import_all(servers: ProductionServers, world: World, source: str) -> None:
    """`lakectl import`: the objects stay where they are."""
    keys = servers.lakefs
    environ = {
        "LAKECTL_SERVER_ENDPOINT_URL": keys.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": keys.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": keys.secret_access_key,
    }
    command = [os.environ["PERAGO_DEV_LAKECTL"], "import", "--no-progress", "--from", source]
    subprocess.run(
        [*command, "--to", f"lakefs://{world.repository}/main/data/"],
        env={**os.environ, **environ},
        check=True,
        capture_output=True,
    )


def fetched(world: World, folder: Path) -> dict[str, bytes]:
    """Everything at the head of main."""
    folder.mkdir()
    ref = world.head().id
    entries: list[Entry] = list(world.lake.list(world.repository, ref, ""))
    files = [Download(entry, folder / str(number)) for number, entry in enumerate(entries)]
    checksums = world.lake.download(world.repository, ref, files)
    found = {file.entry.path: file.target.read_bytes() for file in files}
    assert checksums == {path: hashlib.md5(data).hexdigest() for path, data in found.items()}
    return found


def stats(servers: ProductionServers, world: World) -> dict[str, dict[str, Any]]:
    """Return what lakeFS knows of each object of main, including metadata."""
    path = f"/repositories/{world.repository}/refs/main/objects/ls?user_metadata=true"
    return {one["path"]: one for one in servers.lakefs.call("GET", path)["results"]}


def test_imported_objects_are_read_and_verified_by_the_hash_of_their_parts(
    production_servers: ProductionServers,
    world: World,
    elsewhere: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import_all(production_servers, world, elsewhere)

    assert fetched(world, tmp_path / "got") == WANTED
    # A checksum that nothing can be compared with would be named in a warning.
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_imported_objects_come_from_the_cache_the_second_time_even_if_their_source_is_gone(
    production_servers: ProductionServers, world: World, elsewhere: str, tmp_path: Path
) -> None:
    import_all(production_servers, world, elsewhere)
    fetched(world, tmp_path / "first")
    store = bucket(production_servers.store)
    folder = elsewhere.rstrip("/").rpartition("/")[2]
    store.delete([f"{folder}/{path.removeprefix('data/')}" for path in WANTED])

    assert fetched(world, tmp_path / "second") == WANTED


def test_untouched_objects_keep_their_place_and_metadata(
    production_servers: ProductionServers, world: World, elsewhere: str
) -> None:
    import_all(production_servers, world, elsewhere)
    with_metadata(production_servers, world)
    before = stats(production_servers, world)

    settled = world.run(make_task())

    assert published_ref(settled) == world.head().id
    after = stats(production_servers, world)
    assert {path: after[path] for path in before} == before
    assert before["data/theirs.txt"]["metadata"] == {"X-Amz-Meta-owner": "bob"}
    assert before["data/plain.txt"]["physical_address"] == f"{elsewhere}plain.txt"
    assert len(after) == len(before) + 1


def with_metadata(servers: ProductionServers, world: World) -> None:
    """Upload an object through the gateway as another tool does, with its own metadata."""
    store = another_client(world.repository, servers.lakefs)
    store.put("main/data/theirs.txt", b"theirs", use_multipart=False, attributes={"owner": "bob"})
    world.lake.commit(world.repository, "main", "by somebody", {})


def test_a_repository_in_another_bucket_is_read_and_written(
    production_servers: ProductionServers, tmp_path: Path
) -> None:
    server = production_servers.lakefs
    name = f"test-{uuid.uuid4().hex[:12]}"
    assert server.state_folder is not None
    (server.state_folder / "store" / "buckets" / name).mkdir()
    wanted = {"name": name, "storage_namespace": f"s3://{name}/deep/down", "default_branch": "main"}
    server.call("POST", "/repositories", wanted)

    with lakefs_lake(server, tmp_path / "cache", **WITHOUT_WAITING) as lake:
        world = World(lake, name, tmp_path)
        world.commit({"data/input.txt": "in"})
        settled = world.run(make_task())
        assert published_ref(settled) == world.head().id
        assert fetched(world, tmp_path / "got")["data/input.txt"] == b"in"
        world.orchestrator.close()
    server.call("DELETE", f"/repositories/{name}?force=true")


@pytest.mark.parametrize(
    ("size", "part"),
    [(1, MIB), (13 * MIB, 6 * MIB), (13 * MIB, 7 * MIB), (40 * MIB + 17, 8 * MIB), (12 * MIB, 6 * MIB)],
)
def test_a_hash_of_counted_parts_is_told_from_that_of_other_bytes(
    tmp_path: Path, size: int, part: int
) -> None:
    data = os.urandom(size)
    digests = [hashlib.md5(data[at : at + part]).digest() for at in range(0, size, part)]
    checksum = f"{hashlib.md5(b''.join(digests)).hexdigest()}-{len(digests)}"
    file = tmp_path / "file"
    for content, fits in [(data, True), (bytes([data[0] ^ 1]) + data[1:], False)]:
        file.write_bytes(content)
        with file.open("rb") as source:
            assert fits_counted_parts(source.fileno(), size, checksum) is fits
