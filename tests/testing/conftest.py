"""Trials make their lakes where the other tests have theirs, in memory where there is room."""

from __future__ import annotations

import tempfile

import pytest


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_tests(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.getbasetemp()))
