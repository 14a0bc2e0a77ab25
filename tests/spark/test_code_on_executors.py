"""Functions of tasks in every kind of Python worker, on every master; and what cannot be sent to executors elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import spec_from_file_location
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from perago import RuntimeConfigError
from perago.declare.discovery import load_tasks
from perago.settings import load_settings
from perago.spark.placement import check_placement
from perago.spark.project_code import MOST_DATA_BYTES, project_files, write_archive
from tests.conftest import LakefsServer, fresh_repository
from tests.spark.conftest import FEW_ROWS, as_setting, on_cluster
from tests.support.processes.commands import Shell

TASKS = """
    from pydantic import BaseModel
    from pyspark.sql import functions as F
    from pyspark.sql.datasource import DataSource, DataSourceReader

    from perago import RetryPolicy, SparkWorkspace, TaskControls, WorkspaceSpec, task
    {import_helpers}


    class Params(BaseModel):
        pass


    class Found(BaseModel):
        numbers: dict[str, int]


    def here(number):
        from {late} import add_one  # imported inside a function, and nowhere else

        return add_one(helpers.twice(number))


    def frames(parts):
        for frame in parts:
            yield frame.assign(id=frame["id"].map(here))


    def of_group(frame):
        return frame.assign(id=frame["id"].map(here))


    class Numbers(DataSource):
        @classmethod
        def name(cls):
            return "numbers"

        def schema(self):
            return "id long"

        def reader(self, schema):
            return NumbersReader()


    class NumbersReader(DataSourceReader):
        def read(self, partition):
            yield (here(2),)


    @task(
        name="{name}",
        owner_email="a@example.com",
        workspace=WorkspaceSpec(prefix="/", read_only=True, placement="auto"),
        controls=TaskControls(retry=RetryPolicy(count=0)),
    )
    def use_helpers(workspace: SparkWorkspace, params: Params) -> Found:
        spark = workspace.spark
        spark.dataSource.register(Numbers)
        two = spark.range(2, 3, 1, 1)
        found = {{
            "udf": two.select(F.udf(lambda number: here(number), "int")("id")),
            "udf of a neighbour": two.select(F.udf(helpers.twice, "int")("id")),
            "pandas udf": two.select(F.pandas_udf(lambda numbers: numbers.map(here), "long")("id")),
            "mapInPandas": two.mapInPandas(frames, "id long"),
            "applyInPandas": two.groupBy("id").applyInPandas(of_group, "id long"),
            "rdd.map": spark.sparkContext.parallelize([2], 1).map(here),
            "data source": spark.read.format("numbers").load(),
        }}
        rows = {{kind: one.first() for kind, one in found.items()}}
        return Found(numbers={{kind: row if isinstance(row, int) else row[0] for kind, row in rows.items()}})
"""
HELPERS = """
    from pathlib import Path

    FACTOR = int((Path(__file__).parent / "factor.txt").read_text()) if __package__ else 2


    def twice(number):
        return FACTOR * number
"""
FOUND = {
    **dict.fromkeys(["udf", "pandas udf", "mapInPandas", "applyInPandas", "rdd.map", "data source"], 5),
    "udf of a neighbour": 4,
}
PLACES = ("of_a_file", "of_a_package", "of_a_namespace", "of_a_whole_package")


def write_project(folder: Path) -> list[str]:
    """Write the same task to a file, a module of a package, a namespace package under `src` and a package itself.

    Returns their targets.
    """
    write(folder / "tasks.py", TASKS, name="of_a_file", import_helpers="import helpers", late="late")
    write(folder / "helpers.py", HELPERS)
    write(folder / "late.py", LATE)
    package = folder / "packages" / "shop"
    write(package / "__init__.py", "")
    write(package / "factor.txt", "2")
    # A package goes as a whole, data included.
    names = {"import_helpers": "from shop import helpers", "late": "shop.late"}
    write(package / "tasks.py", TASKS, name="of_a_package", **names)
    write(package / "helpers.py", HELPERS)
    write(package / "late.py", LATE)
    # A folder without `__init__.py`, imported by name: its modules go, nothing else of it.
    names = {"import_helpers": "import stock_helpers as helpers", "late": "stock.late"}
    write(folder / "src" / "stock" / "jobs.py", TASKS, name="of_a_namespace", **names)
    write(folder / "src" / "stock_helpers.py", HELPERS)
    write(folder / "src" / "stock" / "late.py", LATE)
    store = folder / "packages" / "store"
    write(store / "factor.txt", "2")
    names = {"import_helpers": "from store import helpers", "late": "store.late"}
    write(store / "__init__.py", TASKS, name="of_a_whole_package", **names)
    write(store / "helpers.py", HELPERS)
    write(store / "late.py", LATE)
    return ["../code/tasks.py", "../code/packages/shop/tasks.py", "stock.jobs", "../code/packages/store"]


LATE = """
    def add_one(number):
        return number + 1
"""


def write(file: Path, text: str, **names: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = dedent(text)
    file.write_text(text.format(**names) if names else text)


def write_flow(folder: Path, *names: str) -> None:
    steps = [
        {
            "name": name,
            "taskReferenceName": name,
            "type": "SIMPLE",
            "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {}},
        }
        for name in names
    ]
    output = {name: f"${{{name}.output.result}}" for name in names}
    flow = {"name": "w", "version": 1, "schemaVersion": 2, "tasks": steps, "outputParameters": output}
    (folder / "w.json").write_text(json.dumps(flow))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in a folder from which nothing of the user's code can be imported."""
    (tmp_path / "elsewhere").mkdir()
    made = Shell(tmp_path / "elsewhere")
    made.environ |= {"PERAGO_SPARK_SESSION": "quick", "PERAGO_ROOT": str(tmp_path / "root")}
    return made


@pytest.fixture
def on_standalone(
    shell: Shell, master: str, lakefs_server: LakefsServer, conductor_server: Any
) -> Iterator[str]:
    """Let `shell` use a standalone cluster and the real servers. Returns the name of a repository."""
    shell.environ |= {
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
        "CONDUCTOR_SERVER_URL": conductor_server.url,
        "PERAGO_SPARK_MASTER": master,
        "PERAGO_SPARK_CONF": on_cluster({"spark.cores.max": "1", **FEW_ROWS}),
        "PYSPARK_PYTHON": sys.executable,
    }
    with fresh_repository(lakefs_server) as repository:
        yield repository


def run_tasks(shell: Shell, targets: list[str], where: list[str], *more: str) -> Any:
    tasks = [part for target in targets for part in ("--tasks", target)]
    return shell.run("run", "../w.json", *tasks, *where, "-j", "1", "--json", *more)


def embedded(tmp_path: Path) -> list[str]:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "x").touch()
    return ["--import", "music=../data", "--workspace", "music"]


@pytest.mark.parametrize("spark_master", ["local[2]", "local-cluster[1,1,1024]"])
def test_functions_of_tasks_work_on_executors_of_this_machine(
    shell: Shell, tmp_path: Path, spark_master: str
) -> None:
    targets = write_project(tmp_path / "code")
    write_flow(tmp_path, *PLACES)
    shell.environ |= {"PERAGO_SPARK_MASTER": spark_master, "PERAGO_SPARK_CONF": as_setting(FEW_ROWS)}
    shell.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "code" / "src"), *path_of(shell)])

    done = run_tasks(shell, targets, embedded(tmp_path))

    assert done.code == 0, done.out + done.err
    assert json.loads(done.out)["output"] == {name: {"numbers": FOUND} for name in PLACES}


def test_functions_of_tasks_work_on_executors_that_have_only_perago(
    shell: Shell, on_standalone: str, tmp_path: Path
) -> None:
    targets = write_project(tmp_path / "code")
    write_flow(tmp_path, *PLACES)
    shell.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "code" / "src"), *path_of(shell)])

    done = run_tasks(shell, targets, ["--workspace", on_standalone, "--remote", "--yes"])

    assert done.code == 0, done.out + done.err
    assert json.loads(done.out)["output"] == {name: {"numbers": FOUND} for name in PLACES}


CHANGES = """
    import importlib
    import os
    import sys
    from pathlib import Path

    from perago.settings import load_settings
    from perago.spark.session import Sessions
    from perago.spark.session_spec import SessionSpec

    folder = Path(sys.argv[1])
    (folder / "changes.py").write_text("def number(_):\\n    return 1\\n")
    sys.path.append(str(folder))
    import changes

    sessions = Sessions(load_settings(os.environ, root=folder))


    def number_on_executor(*modules):
        with sessions.in_use(SessionSpec("t", modules=modules)) as spark:
            try:
                return spark.sparkContext.parallelize([0], 1).map(changes.number).first()
            except Exception as error:
                return "No module named 'changes'" if "No module named 'changes'" in str(error) else str(error)


    found = [number_on_executor("changes")]
    (folder / "changes.py").write_text("def number(_):\\n    return 22\\n")
    importlib.reload(changes)
    print([*found, number_on_executor("changes"), number_on_executor()])
"""


def test_changed_code_is_sent_again_and_code_of_another_task_is_not_there(
    shell: Shell, on_standalone: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", dedent(CHANGES), str(tmp_path)],
        check=False,
        cwd=shell.folder,
        env=shell.environ,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == """[1, 22, "No module named 'changes'"]""", done.stderr


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on `sys.path`, with a name of its own for everything that is imported from it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_modules_that_are_sent_are_those_that_imports_name(project: Path) -> None:
    write(project / "first_sent.py", "import json, second_sent, numpy\nimport perago.errors\n")
    write(
        project / "second_sent.py",
        "try:\n    from wide_sent.inner import deep\nexcept ImportError:\n    pass",
    )
    write(project / "wide_sent" / "inner" / "deep.py", "import first_sent")
    write(project / "wide_sent" / "inner" / "not_imported.py", "")
    write(project / "wide_sent" / "large.bin", "not of a module")
    write(project / "whole_sent" / "__init__.py", "")
    write(
        project / "whole_sent" / "inner" / "jobs.py",
        "from .. import more\nfrom . import nothing\nimport third_sent",
    )
    write(project / "whole_sent" / "inner" / "data.csv", "1")
    write(project / "whole_sent" / ".env", "secret")
    write(project / "whole_sent" / os.fsdecode(b"odd-\xff.txt"), "")
    write(project / "whole_sent" / "__pycache__" / "jobs.pyc", "")
    write(project / "third_sent.py", "this is not Python")
    write(project / "not_imported.py", "")

    assert sorted(project_files(["first_sent"])) == [
        "first_sent.py",
        "second_sent.py",
        "wide_sent/inner/deep.py",
    ]
    assert sorted(project_files(["whole_sent.inner.jobs"])) == [
        "third_sent.py",
        "whole_sent/__init__.py",
        "whole_sent/inner/data.csv",
        "whole_sent/inner/jobs.py",
    ]
    assert project_files(["json", "numpy", "perago", "pyspark", "no_such_module", "__main__"]) == {}


def test_an_editable_install_that_is_no_folder_of_the_path_is_sent(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As setuptools installs a project whose package is beside its pyproject.toml.
    elsewhere = tmp_path_factory.mktemp("editable")
    write(elsewhere / "store_sent" / "__init__.py", "import deep_sent")
    write(elsewhere / "store_sent" / "prices.py", "")
    write(elsewhere / "deep_sent.py", "")
    write(project / "uses_sent.py", "from store_sent import prices\nimport pydantic, numpy, json")
    places = {"store_sent": "store_sent/__init__.py", "deep_sent": "deep_sent.py"}

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            return spec_from_file_location(name, elsewhere / places[name]) if name in places else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])

    names = {"uses_sent.py", "store_sent/__init__.py", "store_sent/prices.py", "deep_sent.py"}
    assert set(project_files(["uses_sent"])) == names
    import store_sent  # type: ignore[import-not-found]  # noqa: F401

    try:
        assert set(project_files(["uses_sent"])) == names
    finally:
        for name in places:
            sys.modules.pop(name, None)


def test_packages_that_were_installed_into_a_folder_of_the_path_are_not_sent(project: Path) -> None:
    write(project / "installed_sent.py", "")
    (project / "installed_sent-1.0.dist-info").mkdir()

    assert project_files(["installed_sent"]) == {}


def test_large_data_beside_the_code_is_left_out_with_a_warning(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(project / "heavy_sent" / "__init__.py", "")
    write(project / "heavy_sent" / "small.txt", "1")
    with (project / "heavy_sent" / "large.bin").open("wb") as large:
        large.truncate(MOST_DATA_BYTES)

    assert sorted(project_files(["heavy_sent"])) == ["heavy_sent/__init__.py", "heavy_sent/small.txt"]
    assert "1 data files of the project are not sent" in caplog.text
    assert "heavy_sent/large.bin" in caplog.text


def test_an_archive_is_named_after_its_content(tmp_path: Path) -> None:
    write(tmp_path / "a.py", "1")
    files = {"a.py": tmp_path / "a.py"}

    first, again = write_archive(files, tmp_path), write_archive(files, tmp_path)
    write(tmp_path / "a.py", "2")

    assert first == again != write_archive(files, tmp_path)
    with zipfile.ZipFile(first) as archive:
        # Executors unpack it with these permissions.
        assert [entry.external_attr >> 16 for entry in archive.infolist()] == [0o644]


def test_modules_in_a_python_file_of_the_command_line_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "deps.zip", "w") as archive:
        archive.writestr("zipped_sent.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "deps.zip"))

    assert project_files(["zipped_sent"]) == {}


@pytest.mark.parametrize("extension", ["fast.cpython-311-x86_64-linux-gnu.so", "fast.pyd", "fast.so"])
def test_a_compiled_extension_is_told_before_a_worker_polls_and_only_on_clusters(
    project: Path, extension: str
) -> None:
    code = project / f"compiled_{len(extension)}"
    write(code / "__init__.py", "")
    write(code / extension, "")
    tasks = TASKS.replace('"/"', '"/data"')
    write(project / "tasks.py", tasks, name="t", import_helpers=f"import {code.name} as helpers", late="late")
    [task] = load_tasks([str(project / "tasks.py")])
    environ = {
        "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:1",
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "k",
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "s",
    }

    check_placement([task], load_settings({}, root=project), embedded=True)
    cluster = load_settings({**environ, "PERAGO_SPARK_MASTER": "spark://head:7077"}, root=project)
    with pytest.raises(
        RuntimeConfigError, match=rf"{code.name}/{extension} is a compiled extension, .*install it"
    ):
        check_placement([task], cluster, embedded=False)


def path_of(shell: Shell) -> list[str]:
    return [shell.environ["PYTHONPATH"]] if shell.environ.get("PYTHONPATH") else []
