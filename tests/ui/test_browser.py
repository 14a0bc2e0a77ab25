"""The page in a real browser: live updates, history, data, and what hostile content must not do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Error, Page, expect

from perago.ui.server import Served
from tests.support.worlds.ui_fixture_data import FILES, UiFixtureData, arm
from tests.ui.conftest import Watched, watch
from tests.ui.pages import pages_of

pytestmark = pytest.mark.slow


def box(page: Page, step: str):  # type: ignore[no-untyped-def]
    """A step of the graph."""
    return page.locator(f"#box-{step}")


OF_EACH_KIND = {
    "a run that goes on",
    "a run with hostile lines",
    "runs",
    "history",
    "commit",
    "folder",
    "parquet",
}


# What is inside the frame is not ours, and axe cannot see into its sandbox.  Its answer lists every rule that a page keeps,
# and carrying all of that out of the browser takes a fifth of the time.
RUN_AXE = """
axe.run({exclude: [["iframe"]]}, {resultTypes: ["violations"]})
    .then(({passes, violations}) => ({passes: passes.length, violations}))
"""


def serious_faults(page: Page) -> list[str]:
    """Return the accessibility violations that axe-core finds on a page."""
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate(RUN_AXE)
    assert found["passes"] > 10
    return [
        f"{one['id']} ({one['impact']}): {[node['html'][:160] for node in one['nodes']][:3]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


class TestRuns:
    def test_a_step_changes_its_state_without_a_reload(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        world, rank = ui_data.world, arm("rank")
        page = watched.open("/run", id=ui_data.forked, step="rank_people")
        page.evaluate("window.marked = true")
        expect(box(page, "rank_people")).to_contain_text("scheduled")
        polled = world.poll(rank)
        expect(box(page, "rank_people")).to_contain_text("in progress")
        world.orchestrator.log(polled.attempt, ["ranking by hand"])
        expect(page.locator("pre.lines")).to_contain_text("ranking by hand")
        world.execute(rank, polled)
        expect(box(page, "rank_people")).to_contain_text("completed")
        expect(box(page, "report")).to_contain_text("scheduled")
        expect(page.locator("#news")).to_contain_text("rank_people: COMPLETED")
        assert page.evaluate("window.marked") is True

    def test_the_list_shows_a_new_run_by_itself(self, watched: Watched, ui_data: UiFixtureData) -> None:
        page = watched.open("/runs")
        page.evaluate("window.marked = true")
        rows = page.locator("table.runs tbody tr")
        before = rows.count()
        ui_data.world.start(arm("left"))
        expect(rows).to_have_count(before + 1)
        assert page.evaluate("window.marked") is True

    def test_arms_of_a_fork_stand_side_by_side_and_meet_again(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/run", id=ui_data.forked)
        left, right = (box(page, step).bounding_box() for step in ("count_plays", "count_people"))
        join = box(page, "join").bounding_box()
        assert None not in (left, right, join)
        assert left["y"] == right["y"]
        assert left["x"] + left["width"] <= right["x"]
        assert join["y"] > right["y"] + right["height"]

    def test_a_failed_run_shows_its_reason_as_it_was_written(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/run", id=ui_data.failed)
        expect(page.locator(".head .badge")).to_contain_text("FAILED")
        shown = page.locator(".attempt pre.reason").inner_text()
        assert shown == "the <b>third</b> row has no date\n  at line 3\n  at line 7"

    def test_times_checks_params_and_result_of_an_attempt_are_there(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/run", id=ui_data.hostile)
        attempt = page.locator(".attempt")
        for phase in ("input", "download", "checks", "body", "stage", "publish"):
            expect(attempt.locator(".legend")).to_contain_text(phase)
        expect(attempt.locator("table.checks")).to_contain_text("1204 rows")
        expect(attempt.locator("table.checks .badge.warn")).to_contain_text("no, a warning")
        expect(attempt.locator("ul.spark")).to_contain_text("read 5,000 rows (97.7 KB)")
        expect(attempt.locator("ul.spark")).to_contain_text("<script>alert('stage')</script> 1.5 s")
        attempt.get_by_text("Params and result").click()
        expect(attempt).to_contain_text("</script><script>alert('params')</script>")


class TestBranches:
    def test_a_replaced_publication_is_drawn_aside_under_its_tag_and_leads_to_its_attempt_and_back(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/history", repo="music", ref="main")
        row = page.locator("li.commit.replaced")
        expect(row).to_have_count(1)
        tag = ui_data.world.lake.tags("music", "perago-replaced-")[0]
        expect(row).to_contain_text(tag.name)
        row.locator("strong a").click()
        page.wait_for_url(re.compile(re.escape(ui_data.replaced)))
        first = page.locator(".attempt").last
        expect(first).to_contain_text("TIMED_OUT")
        page.locator(".attempt").first.locator(".flow a.id").last.click()
        expect(page.locator("h1")).to_contain_text("Commit")
        expect(page.locator(".facts")).to_contain_text("retry 1")

    def test_superseded_foreign_and_parallel_commits_are_told_apart(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/history", repo="music", ref="main")
        superseded = page.locator("li.commit.superseded")
        expect(superseded).to_have_count(1)
        expect(superseded).to_contain_text("superseded by")
        expect(page.locator("li.commit.other")).to_have_count(4)
        beside = page.locator("li.commit", has_text="beside")
        expect(beside.first).to_contain_text("staged on")
        assert page.locator("svg path.beside").count() > 0

    def test_checks_of_publications_come_with_their_figures(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/checks")
        page.get_by_role("link", name="main").first.click()
        expect(page.locator("table.checks").first).to_contain_text("1204 rows")


class TestData:
    def test_parquet_shows_its_schema_and_first_rows_and_is_not_read_whole(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/object", repo="music", ref="main", path="data/plays.parquet")
        expect(page.locator(".look")).to_contain_text("1000 rows in 4 row groups")
        expect(page.locator("details table")).to_contain_text("double")
        rows = page.locator(".look > .scroll tbody tr")
        expect(rows).to_have_count(50)
        assert rows.first.inner_text().split("\t")[:2] == ["0", "<b>play 0</b>"]

    def test_a_commit_is_browsed_to_an_object_and_downloaded(self, watched: Watched) -> None:
        page = watched.open("/data")
        page.get_by_role("link", name="main").first.click()
        page.get_by_role("link", name="data/", exact=True).click()
        page.get_by_role("link", name="notes.txt", exact=True).click()
        expect(page.locator("pre.text")).to_contain_text("On two lines.")
        with page.expect_download() as started:
            page.get_by_role("link", name="download").click()
        assert started.value.suggested_filename == "notes.txt"
        assert started.value.path().read_text() == FILES["data/notes.txt"]

    def test_two_commits_are_shown_side_by_side(self, watched: Watched, ui_data: UiFixtureData) -> None:
        old = ui_data.world.history()[-2]
        page = watched.open("/compare", repo="music", ref=old, to="main")
        page.get_by_role("link", name="data/result.txt").click()
        expect(page.locator(".pair section").first).to_contain_text("It is not there.")
        expect(page.locator(".pair section").last.locator("pre.text")).to_be_visible()


class TestHostile:
    def test_no_page_runs_what_names_lines_and_files_hold(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        for name, (path, query) in pages_of(ui_data).items():
            page = watched.open(path, **query)
            page.wait_for_timeout(50)
            scripts = page.evaluate("Array.from(document.scripts, one => one.src)")
            assert [one for one in scripts if "/static/page.js" not in one] == [], name
            assert "owned" not in page.title(), name
        assert watched.dialogs == []

    def test_a_hostile_name_and_line_are_shown_as_they_are(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        page = watched.open("/folder", repo="music", ref="main")
        expect(page.get_by_role("link", name="<img src=x onerror=alert(1)>\"'&amp;/")).to_be_visible()
        page = watched.open("/run", id=ui_data.hostile)
        line = page.locator("pre.lines")
        expect(line).to_contain_text("</pre><script>document.title='owned'</script>")
        # What turns the direction of text, or paints it, is written out or gone.
        expect(line).to_contain_text("red\\u202egnihton")

    def test_a_script_that_got_in_would_not_run(self, watched: Watched) -> None:
        page = watched.open("/runs")
        page.evaluate(
            """() => {
                const inline = document.createElement("script");
                inline.textContent = "window.hurt = 'inline'";
                document.body.append(inline);
                const holder = document.createElement("div");
                holder.innerHTML = "<img src=/nowhere onerror=\\"window.hurt = 'handler'\\">";
                document.body.append(holder);
            }"""
        )
        page.wait_for_timeout(200)
        assert page.evaluate("window.hurt") is None

    def test_a_page_from_the_lake_is_framed_without_its_script(self, watched: Watched) -> None:
        page = watched.open("/object", repo="music", ref="main", path="report/index.html")
        told = page.frame_locator("iframe").locator("#told")
        expect(told).to_have_text("A report")
        assert page.title() == "report/index.html · Perago"

    @pytest.mark.parametrize(
        ("path", "name"), [("/frame", "report/index.html"), ("/picture", "report/chart.svg")]
    )
    def test_bytes_from_the_lake_run_nothing_when_opened_by_themselves(
        self, watched: Watched, path: str, name: str
    ) -> None:
        page = watched.page
        page.goto(watched.served.address(path, repo="music", ref="main", path=name))
        page.wait_for_timeout(200)
        assert "owned" not in page.title()
        assert "owned" not in page.content().replace("'owned'", "")


class TestEveryPage:
    def test_the_browser_asks_this_machine_alone_and_can_reach_nothing_else(
        self, watched: Watched, ui_data: UiFixtureData
    ) -> None:
        for path, query in pages_of(ui_data).values():
            watched.open(path, **query)
        origin = watched.served.address("/")
        assert len(watched.asked) > 40
        assert [url for url in watched.asked if not url.startswith(origin)] == []
        for elsewhere in ("http://192.0.2.1/", "http://example.com/"):
            with pytest.raises(Error, match="ERR_PROXY_CONNECTION_FAILED"):
                watched.page.goto(elsewhere)

    def test_all_pages_can_be_read_without_the_script(
        self, browser: Browser, served: Served, ui_data: UiFixtureData
    ) -> None:
        with browser.new_context(java_script_enabled=False) as context:
            page = watch(context, served).open("/run", id=ui_data.failed)
            expect(page.locator("pre.reason").first).to_contain_text("has no date")

    def test_a_run_is_reached_by_the_keyboard_alone(self, watched: Watched) -> None:
        page = watched.open("/runs")
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        name = page.locator(":focus").inner_text()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text(name)

    @pytest.fixture(params=["light", "dark", "phone"])
    def reader(self, request: pytest.FixtureRequest, browser: Browser, served: Served) -> Iterator[Watched]:
        """The page on a wide screen, in dark mode, or on a phone."""
        width = 360 if request.param == "phone" else 1280
        scheme = "dark" if request.param == "dark" else "light"
        with browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}) as context:
            yield watch(context, served)

    def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(
        self, reader: Watched, ui_data: UiFixtureData, request: pytest.FixtureRequest
    ) -> None:
        found = []
        for name, (path, query) in pages_of(ui_data).items():
            page = reader.open(path, **query)
            width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            if width[0] > width[1]:
                found.append(f"{name}: {width[0]} wide")
            # On a wide screen by day every page, else one of each kind.
            if name in OF_EACH_KIND or request.node.callspec.params["reader"] == "light":
                found += [f"{name}: {fault}" for fault in serious_faults(page)]
        assert found == []

    def test_axe_would_find_a_fault(self, watched: Watched) -> None:
        page = watched.open("/history", repo="music", ref="main")
        page.evaluate("() => document.querySelector('label').remove()")
        assert [fault.split()[0] for fault in serious_faults(page)] == ["label"]

    def test_the_page_is_dark_in_dark_mode(self, browser: Browser, served: Served) -> None:
        with browser.new_context(color_scheme="dark") as context:
            page = watch(context, served).open("/runs")
            colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 150
