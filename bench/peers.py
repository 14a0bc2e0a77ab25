"""The peers that transfers are compared with: a raw obstore loop, lakectl, and the public perago 0.6.1."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lakefs_sdk
from obstore.store import S3Store

from bench.harness import Context, dev_cache, timed

OLD_VERSION = "0.6.1"
_THREADS = 16
_STREAM_ABOVE = 8 * 1024 * 1024
_CHUNK = 1024 * 1024


def _get_all(
    store: S3Store, objects: Sequence[tuple[str, int]], files: Sequence[Path], *, md5: bool = False
) -> float:
    """Return the seconds to get objects of known size into their files."""

    def one(key: str, size: int, file: Path) -> None:
        found = store.get(key)
        pieces = found.stream(min_chunk_size=_CHUNK) if size > _STREAM_ABOVE else [found.bytes()]
        total = hashlib.md5(usedforsecurity=False)
        with open(file, "wb", buffering=0) as out:
            for piece in pieces:
                if md5:
                    total.update(piece)
                out.write(piece)

    def all_of_them() -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(one, *zip(*objects, strict=True), files))

    return timed(all_of_them)


class RawStore:
    """The limit on a production server: the same gets, directly from its object store, by the keys that lakeFS uses."""

    def __init__(self, context: Context) -> None:
        self._store = S3Store(
            context.needed("PERAGO_DEV_STORE_BUCKET"),
            endpoint=context.needed("PERAGO_DEV_STORE_URL"),
            access_key_id=context.needed("PERAGO_DEV_STORE_ACCESS_KEY_ID"),
            secret_access_key=context.needed("PERAGO_DEV_STORE_SECRET_ACCESS_KEY"),
            region="us-east-1",
            client_options={"allow_http": True},
        )
        self._home = f"s3://{context.needed('PERAGO_DEV_STORE_BUCKET')}/"

    def objects(
        self, server: lakefs_sdk.ApiClient, where: tuple[str, str, str], wanted: Sequence[tuple[str, int]]
    ) -> list[tuple[str, str, int]]:
        """Return the path, key and size of objects below a prefix."""
        repository, ref, prefix = where
        api, keys, after = lakefs_sdk.ObjectsApi(server), {}, ""
        while True:
            page = api.list_objects(repository, ref, prefix=prefix, after=after, amount=1000)
            keys |= {one.path: one.physical_address.removeprefix(self._home) for one in page.results}
            if not page.pagination.has_more:
                return [(path, keys[path], size) for path, size in wanted]
            after = page.pagination.next_offset

    def download(self, objects: Sequence[tuple[str, str, int]], folder: Path) -> float:
        """Return the seconds to get the objects. Their folders are created beforehand."""
        fresh(folder, [path for path, *_ in objects])
        files = [folder / path for path, *_ in objects]
        return _get_all(self._store, [(key, size) for _, key, size in objects], files)


class RawLoop:
    """The limit: parallel gets, straight to files.

    With `md5`, the bytes are hashed as they arrive, as in a verified download.
    """

    def __init__(self, context: Context, repository: str) -> None:
        self._store = S3Store(
            repository,
            endpoint=context.needed("LAKECTL_SERVER_ENDPOINT_URL"),
            access_key_id=context.needed("LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
            secret_access_key=context.needed("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def download(
        self, ref: str, objects: Sequence[tuple[str, int]], folder: Path, *, md5: bool = False
    ) -> float:
        """Return the seconds to get the objects. Their folders are created beforehand."""
        fresh(folder, [path for path, _ in objects])
        keys = [(f"{ref}/{path}", size) for path, size in objects]
        return _get_all(self._store, keys, [folder / path for path, _ in objects], md5=md5)

    def put(self, branch: str, path: str, data: bytes) -> None:
        """Upload one object in a single plain request."""
        self._store.put(f"{branch}/{path}", data, use_multipart=False)


class Lakectl:
    """The commands of `lakectl local`."""

    def __init__(self, context: Context) -> None:
        self._program = context.needed("PERAGO_DEV_LAKECTL")
        self._environ = {**context.environ, "HOME": str(context.folder)}

    def clone(self, uri: str, folder: Path) -> float:
        """Return the seconds of a `lakectl local clone` into a new folder."""
        shutil.rmtree(folder, ignore_errors=True)
        return timed(lambda: self._run("local", "clone", uri, str(folder)))

    def commit(self, folder: Path, message: str) -> float:
        """Return the seconds of a `lakectl local commit`."""
        return timed(lambda: self._run("local", "commit", str(folder), "-m", message))

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [self._program, *arguments], env=self._environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"lakectl {' '.join(arguments)}: {done.stdout}{done.stderr}")


class OldPerago:
    """The public perago 0.6.1, in its own venv. It times itself, without its imports."""

    def __init__(self, context: Context) -> None:
        self._environ = dict(context.environ)
        self._python = old_python(context)

    def run(self, **what: Any) -> dict[str, float]:
        """Run its download, and its stage if `change` names a file."""
        script = Path(__file__).parent / "scripts" / "old_perago.py"
        done = subprocess.run(
            [self._python, str(script), json.dumps(what)],
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"perago {OLD_VERSION}: {done.stderr}")
        answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return answer


def fresh(folder: Path, paths: Sequence[str]) -> None:
    """Create an empty folder with the subfolders that the paths need."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in {os.path.dirname(path) for path in paths} | {""}:
        (folder / name).mkdir(parents=True, exist_ok=True)


def old_python(context: Context) -> Path:
    """Return the Python of a venv with perago 0.6.1, created on the first call."""
    # Both run on the same interpreter: one that is built with other options can be a quarter faster or slower.
    interpreter = hashlib.sha256(f"{sys.base_prefix} {sys.version}".encode()).hexdigest()[:8]
    folder = dev_cache() / f"perago-{OLD_VERSION}-{interpreter}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        context.say(f"installing perago {OLD_VERSION} into {folder}")
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", f"perago=={OLD_VERSION}"], check=True, stdout=sys.stderr
        )
        done.touch()
    return python
