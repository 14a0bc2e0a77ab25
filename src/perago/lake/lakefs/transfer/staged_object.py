"""What lakeFS does for an object whose bytes go straight to the store: names a place, and links what arrived there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perago.errors import LakeUnavailable
from perago.lake.lakefs.client import Apis, LakeFSClient, Repeat, Timeout
from perago.lake.lakefs.errors import not_lakefs
from perago.lake.lakefs.listing import KEPT_AS
from perago.lake.lakefs.sdk import sdk


class StagedObject:
    """What lakeFS does for one object that goes to a branch."""

    def __init__(self, client: LakeFSClient, repository: str, branch: str, path: str) -> None:
        self._client = client
        self._where = (repository, branch)
        self.path = path
        self._doing = f"upload object {path!r} to branch {branch!r} of repository {repository!r}"

    def place(self) -> tuple[str, str]:
        """A new place in the store: its name, and the address to write it."""
        answer = self._call(
            lambda apis, limit: apis.staging.get_physical_address(
                *self._where, self.path, presign=True, _request_timeout=limit
            )
        )
        return self._named(answer, "physical_address"), self._named(answer, "presigned_url")

    def link(self, location: str, md5: str, size: int) -> None:
        """Have the branch name what is at a place."""
        staging = sdk.StagingLocation(physical_address=location)
        wanted = sdk.StagingMetadata(staging=staging, checksum=md5, size_bytes=size)
        self._call(
            lambda apis, limit: apis.staging.link_physical_address(
                *self._where, self.path, wanted, _request_timeout=limit
            )
        )

    def begin(self) -> tuple[str, str]:
        """Begin an upload in parts: its id, and the place."""
        answer = self._call(
            lambda apis, limit: apis.experimental.create_presign_multipart_upload(
                *self._where, self.path, parts=0, _request_timeout=limit
            )
        )
        return self._named(answer, "upload_id"), self._named(answer, "physical_address")

    def part_address(self, where: tuple[str, str], number: int) -> tuple[str, str]:
        """The place of the upload, and the address to write one part of it."""
        wanted = sdk.UploadPartFrom(physical_address=where[1])
        answer = self._call(
            lambda apis, limit: apis.experimental.upload_part(
                *self._where, where[0], self.path, number, wanted, _request_timeout=limit
            )
        )
        return where[1], self._named(answer, "presigned_url")

    def complete(self, where: tuple[str, str], etags: list[str], md5: str, size: int) -> None:
        """Make the object of its parts, on the branch, its MD5 noted; an answer that is lost is looked up."""
        parts = [sdk.UploadPart(part_number=number, etag=etag) for number, etag in enumerate(etags, start=1)]
        wanted = sdk.CompletePresignMultipartUpload(
            physical_address=where[1], parts=parts, user_metadata={KEPT_AS: md5}
        )
        try:
            answer = self._client.call(
                self._doing,
                lambda apis, limit: apis.experimental.complete_presign_multipart_upload(
                    *self._where, where[0], self.path, wanted, _request_timeout=limit
                ),
                # Done twice, it fails the second time.
                repeat=Repeat.UNSENT,
            )
        except LakeUnavailable:
            answer = self._call(
                lambda apis, limit: apis.objects.stat_object(
                    *self._where, self.path, user_metadata=True, _request_timeout=limit
                )
            )
            if (answer.get("metadata") or {}).get(KEPT_AS) != md5:
                raise
        if answer.get("size_bytes") != size:
            raise LakeUnavailable(f"{self._doing}: lakeFS has {answer.get('size_bytes')} bytes, not {size}")

    def abort(self, upload_id: str, location: str) -> None:
        """Drop the parts that arrived."""
        wanted = sdk.AbortPresignMultipartUpload(physical_address=location)
        self._call(
            lambda apis, limit: apis.experimental.abort_presign_multipart_upload(
                *self._where, upload_id, self.path, wanted, _request_timeout=limit
            )
        )

    def _call(self, call: Callable[[Apis, Timeout], Any]) -> Any:
        return self._client.call(self._doing, call, repeat=Repeat.ALWAYS)

    def _named(self, answer: Any, name: str) -> str:
        try:
            return str(answer[name])
        except (KeyError, TypeError):
            raise not_lakefs(self._doing, "") from None
