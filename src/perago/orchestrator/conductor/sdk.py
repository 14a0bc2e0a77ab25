"""Imports only the HTTP layer of Conductor's official client, without its workers, typed calls and models.

The whole client takes half a second to import, a delay for every executor and every command, and it changes how
multiprocessing starts processes.  A body that imports it gets the unchanged client.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from perago.sdk_import import import_parts

_CLIENT = "conductor.client"
_COMMAND = "httpx._main"


def _import_client() -> Mapping[str, ModuleType]:
    parts = (
        "configuration.configuration",
        "configuration.settings.authentication_settings",
        "exceptions.api_error",
        "http.api_client",
        "http.async_rest",
        "http.models.token",
        "http.rest",
    )
    bare = ("", ".configuration", ".exceptions", ".http", ".http.models")
    found = import_parts(
        "conductor",
        [f"{_CLIENT}.{part}" for part in parts],
        without_init=[f"{_CLIENT}{package}" for package in bare],
    )
    ours = {part: found[f"{_CLIENT}.{part}"] for part in parts}
    # The only model that the HTTP layer itself creates.
    found[f"{_CLIENT}.http.models"].Token = ours["http.models.token"].Token  # type: ignore[attr-defined]
    return ours


def _httpx() -> Any:
    """Import httpx without its command line and terminal libraries, which are imported on first call."""
    if "httpx" not in sys.modules:
        stub = ModuleType(_COMMAND)
        stub.main = _main  # type: ignore[attr-defined]
        sys.modules[_COMMAND] = stub
        try:
            importlib.import_module("httpx")
        finally:
            del sys.modules[_COMMAND]
    return importlib.import_module("httpx")


def _main() -> Any:
    return importlib.import_module(_COMMAND).main()


httpx: Any = _httpx()
_parts = _import_client()

# The client has no types.
ApiClient: Any = _parts["http.api_client"].ApiClient
AuthenticationSettings: Any = _parts["configuration.settings.authentication_settings"].AuthenticationSettings
Configuration: Any = _parts["configuration.configuration"].Configuration
ApiException: Any = _parts["http.rest"].ApiException
AuthorizationException: Any = _parts["http.rest"].AuthorizationException
ERRORS: tuple[type[Exception], ...] = (
    ApiException,
    _parts["http.async_rest"].ApiException,
    _parts["exceptions.api_error"].APIError,
)
"""The exceptions that the client raises."""
