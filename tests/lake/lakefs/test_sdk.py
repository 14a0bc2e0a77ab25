"""Perago's copy of the SDK: without checks of arguments, and invisible to other code."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each of them starts processes.
pytestmark = pytest.mark.slow

CHECKED = "hasattr(lakefs_sdk.BranchesApi.create_branch, 'raw_function')"
OURS = "not hasattr(sdk.BranchesApi.create_branch, 'raw_function')"


@pytest.mark.parametrize(
    "imports",
    [
        "import lakefs_sdk; from perago.lake.lakefs.sdk import sdk",
        "from perago.lake.lakefs.sdk import sdk; import lakefs_sdk",
    ],
    ids=["a body's first", "ours first"],
)
def test_a_body_that_imports_the_sdk_gets_the_whole_one_whoever_comes_first(imports: str) -> None:
    said = f"""{imports}
import lakefs_sdk.api.branches_api, pydantic.v1, sys
assert {CHECKED} and {OURS}
assert sys.modules["lakefs_sdk"] is lakefs_sdk and hasattr(lakefs_sdk, 'ActionsApi') and not hasattr(sdk, 'ActionsApi')
assert lakefs_sdk.api.branches_api.BranchesApi is lakefs_sdk.BranchesApi is not sdk.BranchesApi
assert lakefs_sdk.ApiException is not sdk.ApiException
assert pydantic.v1.validate_arguments.__module__ == "pydantic.v1.decorator"
"""
    subprocess.run([sys.executable, "-c", said], check=True)
