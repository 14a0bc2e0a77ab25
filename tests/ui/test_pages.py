"""The pages as an HTTP client gets them: errors, pages of long lists, previews and bytes."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest

from perago.lake.local.lake import LocalLake
from perago.runtime.root.spark_uis import note_ui
from perago.runtime.root.state_dir import own_folder
from perago.runtime.runs.record import Run, RunEnd, runs_folder, save_end, save_run
from perago.ui import parquet_preview, row_pages
from perago.ui.graph import graph_of
from perago.ui.preview import FIRST_BYTES
from perago.ui.rendering import escape_hidden, link
from perago.ui.text_preview import is_text, table_of
from tests.support.servers.served_page import served_page
from tests.support.worlds.ui_fixture_data import FILES, UiFixtureData, put_files, table_bytes
from tests.ui.pages import pages_of


@pytest.fixture(scope="module")
def http(ui_data: UiFixtureData) -> Iterator[httpx.Client]:
    root = ui_data.world.folder
    with served_page(root, lambda: LocalLake(root / "lake")) as made:
        yield made


class TestErrors:
    @pytest.mark.parametrize(
        ("address", "said"),
        [
            ("/run?id=nobody", "no run 'nobody'"),
            ("/history?repo=musik", "did you mean 'music'?"),
            ("/history?repo=music&ref=mian", "did you mean 'main'?"),
            ("/object?repo=music&path=data/nots.txt", "there is no object"),
            ("/commit", "names no repository"),
            ("/nowhere", "Not Found"),
            ("/run?id=../../etc", "no run"),
            ("/run?id=%00", "no run"),
        ],
    )
    def test_a_missing_object_is_reported_in_a_page(
        self, http: httpx.Client, address: str, said: str
    ) -> None:
        answer = http.get(address)
        assert answer.status_code == 404
        assert said in answer.text.replace("&#39;", "'")

    def test_a_hostile_question_is_answered_in_text(self, http: httpx.Client) -> None:
        answer = http.get("/run", params={"id": "<script>alert(1)</script>"})
        assert "<script>alert" not in answer.text


class TestLinks:
    def test_every_link_on_every_page_leads_to_a_page(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        coming = [link(path, **query) for path, query in pages_of(ui_data).values()]
        seen: dict[str, str] = dict.fromkeys(coming, "")
        while coming:
            address = coming.pop()
            answer = http.get(address)
            assert answer.status_code in (200, 307), f"{address} on {seen[address]}"
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            for found in map(unescape, re.findall(r'(?:href|src)="(/[^"#]*)', answer.text)):
                if found not in seen:
                    seen[found] = address
                    coming.append(found)
        assert any(f"id={ui_data.mapped}&step=row_7" in one for one in seen), "the history links to the map"
        assert link("/log", id=ui_data.mapped) in seen

    def test_an_attempt_links_to_its_spark_ui_while_it_lives(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        world = ui_data.world
        [task] = world.orchestrator.workflow(ui_data.hostile).tasks
        folder = own_folder(world.folder / "spark", "session")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            note_ui(folder, address, task.task_id)
            alive = http.get("/run", params={"id": ui_data.hostile}).text
        gone = http.get("/run", params={"id": ui_data.hostile}).text
        note_ui(folder, "javascript:alert(1)", task.task_id)
        hostile = http.get("/run", params={"id": ui_data.hostile}).text
        shutil.rmtree(folder)

        assert f'href="{address}"' in alive
        assert "Spark UI" not in gone + hostile

    def test_a_map_has_a_page_with_its_rows_by_reason_and_what_they_printed(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        page = http.get("/run", params={"id": ui_data.mapped}).text
        assert "1 of 9 rows are done, 8 failed" in page
        assert "no &lt;script&gt;alert(" in page
        assert "<script>alert" not in page
        assert "1 other kinds of failures" in page
        assert http.get("/log", params={"id": ui_data.mapped}).text.startswith("tagging\n")
        assert f"/run?id={ui_data.mapped}" in http.get("/runs").text
        live = http.get("/live/run", params={"id": ui_data.mapped}).text
        assert "event: over" in live


class TestBytes:
    @pytest.mark.parametrize("path", ["data/plays.parquet", "report/index.html", "report/chart.svg"])
    def test_a_download_is_all_bytes_and_never_shown(self, http: httpx.Client, path: str) -> None:
        answer = http.get("/download", params={"repo": "music", "path": path})
        content = FILES[path]
        assert answer.content == (content if isinstance(content, bytes) else content.encode())
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")

    def test_only_pictures_are_pictures_and_only_pages_are_framed(self, http: httpx.Client) -> None:
        here = {"repo": "music", "path": "data/notes.txt"}
        assert http.get("/picture", params=here).status_code == 404
        assert http.get("/frame", params=here).status_code == 404

    def test_the_frame_and_the_picture_have_a_policy_in_which_nothing_runs(self, http: httpx.Client) -> None:
        for path, name in (("/frame", "report/index.html"), ("/picture", "report/chart.svg")):
            policy = http.get(path, params={"repo": "music", "path": name}).headers["content-security-policy"]
            assert policy.split("; ")[:2] == ["sandbox", "default-src 'none'"]
            assert "script-src" not in policy
            assert "allow-" not in policy

    def test_a_name_cannot_break_out_of_the_header(self, http: httpx.Client, ui_data: UiFixtureData) -> None:
        name = 'x/a"; filename="b.exe\r\nX-Bad: 1'
        put_files(ui_data.world, {name: "x"})
        ui_data.world.lake.commit("music", "main", "odd", {})
        answer = http.get("/download", params={"repo": "music", "path": name})
        assert answer.text == "x"
        assert "x-bad" not in answer.headers
        assert '"' not in answer.headers["content-disposition"]


class TestLongLists:
    def test_a_thousand_runs_come_a_page_at_a_time_and_only_their_records_are_read(
        self, tmp_path: Path
    ) -> None:
        for number in range(120):
            run = Run(f"20260101-{number:06}-abcdef", f"w{number}", "flow", ["tasks.py"], str(tmp_path))
            save_run(tmp_path, run)
            save_end(tmp_path, run.id, RunEnd("COMPLETED", float(number), number + 1.0))
        seen: list[str] = []
        with served_page(tmp_path) as http:
            address = "/runs"
            for _ in range(3):
                page = http.get(address).text
                seen += [part.partition("<")[0] for part in page.split('<br><span class="id">')[1:]]
                _, _, rest = page.partition('<p class="pager"><a href="')
                address = rest.partition('"')[0].replace("&amp;", "&")
        assert seen == [f"20260101-{number:06}-abcdef" for number in reversed(range(120))]
        assert address == ""
        # A broken record hides no other.
        (runs_folder(tmp_path) / "20260101-000119-abcdef" / "run.json").write_text("{")
        with served_page(tmp_path) as http:
            assert "20260101-000118-abcdef" in http.get("/runs").text

    def test_a_folder_comes_a_page_at_a_time(self, http: httpx.Client, ui_data: UiFixtureData) -> None:
        put_files(ui_data.world, {f"many/{number:04}": "x" for number in range(450)})
        ui_data.world.lake.commit("music", "main", "many", {})
        found, address = 0, "/folder?repo=music&path=many/"
        for _ in range(3):
            page = http.get(address).text
            found += page.count('scope="row"')
            _, _, rest = page.partition('<p class="pager"><a href="')
            address = rest.partition('"')[0].replace("&amp;", "&")
        assert (found, address) == (450, "")


class TestLastWriter:
    def test_an_object_and_a_folder_name_their_last_writer_and_not_the_head(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        put_files(ui_data.world, {"writer/one.txt": "1"})
        wrote = ui_data.world.lake.commit("music", "main", "one", {})
        put_files(ui_data.world, {"elsewhere.txt": "2"})
        head = ui_data.world.lake.commit("music", "main", "two", {})

        for address in ("/object?repo=music&path=writer/one.txt", "/folder?repo=music&path=writer/"):
            _, _, writer = http.get(address).text.partition('<p class="facts writer">')
            writer = writer.partition("</p>")[0]
            assert "last written by" in writer
            assert wrote[:12] in writer
            assert head[:12] not in writer
            assert "not signed" in writer

    def test_a_publication_names_its_step_and_its_input(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        lake = ui_data.world.lake
        commit = next(
            one
            for one in lake.log("music", "main", 50)
            if one.metadata.get("perago.phase") == "confirm"
            and list(lake.diff_paths("music", str(one.first_parent), one.id, ["data/result.txt"]))
        )
        page = http.get("/object?repo=music&path=data/result.txt").text
        writer = page.partition('<p class="facts writer">')[2].partition("</p>")[0]
        reference = commit.metadata["perago.logical_task_key"].partition("/")[2]
        assert f">{commit.id[:12]}</a>" in writer
        assert f"<bdi>{reference}</bdi>" in writer
        assert (
            f'from input <a class="id" href="/commit?repo=music&amp;ref={commit.metadata["perago.input_ref"]}'
            in writer
        )


class TestPreviews:
    def test_parquet_is_read_by_ranges_and_not_whole(self) -> None:
        data, read = table_bytes(200_000), []

        def part(start: int, length: int) -> bytes:
            read.append(length)
            return data[start : start + length]

        found = parquet_preview.preview_parquet(part, len(data))
        assert isinstance(found, parquet_preview.ParquetPreview)
        assert (found.rows, found.row_groups, len(found.table.rows)) == (200_000, 4, 50)
        assert [column.name for column in found.columns] == ["id", "title <i>x</i>", "seconds"]
        assert sum(read) == found.read < len(data) / 2

    @pytest.mark.parametrize(
        "data", [b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"\xff\xff\xff\x7fPAR1", b"no" * 50]
    )
    def test_a_file_that_is_no_parquet_is_reported(self, data: bytes) -> None:
        found = parquet_preview.preview_parquet(lambda start, length: data[start : start + length], len(data))
        assert isinstance(found, str)

    def test_a_file_that_lies_about_its_size_costs_no_more_than_the_bound(self) -> None:
        data = b"\x00" * 100
        tail = (40 * 1024 * 1024).to_bytes(4, "little") + b"PAR1"
        size = 10**12

        def part(start: int, length: int) -> bytes:
            return (
                tail[-length:]
                if start + length >= size and length <= 8
                else (data * (length // 100 + 1))[:length]
            )

        assert isinstance(parquet_preview.preview_parquet(part, size), str)

    def test_a_csv_that_is_cut_loses_its_last_line(self) -> None:
        table = table_of("a,b\n1,2\n3,", ",", whole=False)
        assert table is not None
        assert (table.columns, table.rows) == (["a", "b"], [["1", "2"]])

    def test_text_that_is_cut_in_a_character_is_text(self) -> None:
        assert is_text("é".encode() * 10 + b"\xc3")
        assert not is_text(b"\xc3" + b"a" * 10)
        assert not is_text(b"a\x00b")

    def test_only_the_first_bytes_of_a_text_are_read(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        put_files(ui_data.world, {"long.txt": "a" * FIRST_BYTES + "THE END"})
        ui_data.world.lake.commit("music", "main", "long", {})
        page = http.get("/object", params={"repo": "music", "path": "long.txt"}).text
        assert "THE END" not in page
        assert "These are its first 64 KB." in page


class TestWords:
    def test_what_hides_or_turns_text_is_written_out(self) -> None:
        assert escape_hidden("a\u202eb\u200bc\x00d\ud800") == "a\\u202eb\\u200bc\\x00d\\ud800"

    def test_a_link_keeps_every_name_whole(self) -> None:
        assert (
            link("/x", repo="a&b=c#d", path='"><script>') == "/x?repo=a%26b%3Dc%23d&path=%22%3E%3Cscript%3E"
        )


def test_a_graph_has_forks_switches_and_loops_with_retries_folded(ui_data: UiFixtureData) -> None:
    state = ui_data.world.workflow(ui_data.forked)
    nodes = graph_of(state)
    assert [(node.reference, node.shape) for node in nodes] == [
        ("fork", "fork"),
        ("join", "step"),
        ("report", "step"),
    ]
    assert [[node.reference for node in lane.nodes] for lane in nodes[0].lanes] == [
        ["count_plays"],
        ["count_people", "rank_people"],
    ]
    again = graph_of(ui_data.world.workflow(ui_data.replaced))
    assert [(node.standing.status, node.standing.attempts) for node in again] == [("COMPLETED", 2)]


def test_live_events_hold_no_line_of_anybody_else(http: httpx.Client, ui_data: UiFixtureData) -> None:
    with http.stream("GET", "/live/run", params={"id": ui_data.failed}) as answer:
        text = "".join(answer.iter_text())
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in text.strip().split("\n\n")]
    assert [block[0] for block in events[1:]] == ["event: parts", "event: over"]
    parts = json.loads(events[1][1].removeprefix("data: "))["parts"]
    assert [part["id"] for part in parts] == ["head", "graph", "step"]


class TestRows:
    def test_the_rows_of_a_table_that_differ_are_shown(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        path, query = pages_of(ui_data)["rows"]

        page = unescape(http.get(path, params=query).text)

        assert "2 added, 0 removed, 0 changed" in page
        assert "=cmd|' /C calc'!A0" in page

    def test_what_cannot_be_compared_is_told_on_the_page(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        path, query = pages_of(ui_data)["rows that cannot be compared"]

        answer = http.get(path, params=query)

        assert answer.status_code == 200
        assert "'data' is not a table" in unescape(answer.text)

    def test_names_that_look_like_options_are_names(self, http: httpx.Client, ui_data: UiFixtureData) -> None:
        _, query = pages_of(ui_data)["rows"]

        page = unescape(http.get("/rows", params={**query, "path": "--help", "key": "--json"}).text)

        assert "there is no object '--help'" in page

    def test_a_comparison_that_takes_too_long_ends(
        self, http: httpx.Client, ui_data: UiFixtureData, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(row_pages, "LONGEST_SECONDS", 0.01)
        path, query = pages_of(ui_data)["rows"]

        assert "comparing took more than 0.01 s" in http.get(path, params=query).text

    def test_two_commits_side_by_side_lead_to_the_rows(
        self, http: httpx.Client, ui_data: UiFixtureData
    ) -> None:
        _, query = pages_of(ui_data)["rows"]

        assert "/rows?" in http.get("/compare", params=query).text
