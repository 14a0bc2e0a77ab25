"""A real browser, one for the tests of a module, that can reach this machine alone; and a root with much to look at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from perago.backend import Embedded
from perago.cli.ui import serving_page
from perago.lake.local.lake import LocalLake
from perago.settings import load_settings
from perago.ui.server import Served
from tests.support.servers.served_page import chromium
from tests.support.worlds.ui_fixture_data import UiFixtureData, fill_for_ui
from tests.support.worlds.world import World

LONGEST_MS = 180_000
"""Only a page that hangs takes so long, on however busy a machine."""
expect.set_options(timeout=LONGEST_MS)
# Everything that is not on this machine goes through a proxy that does not exist: nothing answers at the discard port.
LOOPBACK_ALONE = ["--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=127.0.0.1"]


@dataclass(slots=True)
class Watched:
    """A page in the browser, and what happened that should not have."""

    page: Page
    served: Served
    asked: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, path: str, /, **query: str) -> Page:
        """Go to a page of the site."""
        answer = self.page.goto(self.served.address(path, **query), wait_until="load")
        assert answer is not None
        assert answer.ok, self.page.inner_text("main")
        return self.page


def watch(context: BrowserContext, served: Served) -> Watched:
    """A new page of a context."""
    context.set_default_timeout(LONGEST_MS)
    watched = Watched(context.new_page(), served)

    def refuse(dialog: Any) -> None:
        watched.dialogs.append(dialog.message)
        dialog.dismiss()

    watched.page.on("request", lambda request: watched.asked.append(request.url))
    watched.page.on("dialog", refuse)
    watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
    return watched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which can reach this machine alone.

    A module has it and gives it back: while it is open, an event loop counts as running in this thread.
    """
    if (program := chromium()) is None:
        pytest.skip("there is no chromium: run dev/ensure-chromium")
    with sync_playwright() as driver:
        # Its own sandbox needs rights that a container does not give; the pages here are ours.
        opened = driver.chromium.launch(
            executable_path=program, args=[*LOOPBACK_ALONE, "--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def ui_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiFixtureData]:
    """A root with runs and a lake of one repository."""
    root = tmp_path_factory.mktemp("root")
    lake = LocalLake(root / "lake")
    lake.create_repository("music")
    world = World(lake, "music", root)
    world.clock.now = time.time()
    yield fill_for_ui(world)
    world.orchestrator.close()
    lake.close()


@pytest.fixture(scope="module")
def served(ui_data: UiFixtureData) -> Iterator[Served]:
    """The page over it."""
    with serving_page(Embedded(settings_of(ui_data.world.folder)), port=0) as where:
        yield where


@pytest.fixture
def watched(browser: Browser, served: Served) -> Iterator[Watched]:
    """A page in the browser."""
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        yield watch(context, served)


def settings_of(root: Path) -> Any:
    """Settings with nothing but a root."""
    return load_settings({}, root=root)
