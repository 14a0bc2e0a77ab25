"""Every wrong declaration, by name: the source, and what the error says."""

from __future__ import annotations

HEAD = """
    from pathlib import Path
    from pydantic import BaseModel, RootModel
    from perago import *

    class P(BaseModel):
        a: int
    class R(BaseModel):
        b: int
    class Names(RootModel[list[str]]):
        pass
    class Nested(BaseModel):
        names: list[Names]
"""
WITH = "@task(name='t', owner_email='a@b.c', workspace=WorkspaceSpec())\n"
FREE = "@task(name='t', owner_email='a@b.c')\n"
OK = "def t(params: P) -> R: ...\n"
OK_SPARK = "def t(workspace: SparkWorkspace, params: P) -> R: ...\n"
OK_WORKSPACE = "def t(workspace: Path, params: P) -> R: ...\n"


def told(**fields: str) -> str:
    said = {"name": "'t'", "owner_email": "'a@b.c'"} | fields
    return f"@task({', '.join(f'{name}={value}' for name, value in said.items() if value)})\n"


def budget(**fields: int) -> str:
    said = {
        "observed_merge_p99_seconds": 5,
        "safety_margin_seconds": 5,
        "lakefs_merge_timeout_seconds": 10,
        "conductor_completion_timeout_seconds": 1,
        "worker_shutdown_grace_seconds": 1,
        "heartbeat_interval_seconds": 1,
    } | fields
    return f"PublishBudget({', '.join(f'{name}={value}' for name, value in said.items())})"


def control(value: str) -> str:
    return told(controls=f"TaskControls({value})") + OK


def spark(value: str) -> str:
    return told(workspace="WorkspaceSpec()", spark=f"SparkControls({value})") + OK_SPARK


def spec(value: str) -> str:
    return told(workspace=f"WorkspaceSpec({value})") + OK_WORKSPACE


def partitioned(value: str, *, fields: str = "day: str", names: str = "") -> str:
    """Return the source of a task whose paths name params, after the class of its params."""
    model = f"import datetime, decimal, enum, typing\n{names}\nclass P(BaseModel):\n    {fields}\n"
    return model + spec(value)


DAILY = "writes=['clean/day={day}']"
SEEN = "reads=['clean/day={day}']"
MUST_FILL = "must be a str, int, date, or an enum of str or int, to be filled into a path, not"

DIAGNOSTICS: dict[str, tuple[str, str]] = {
    # signature
    "no parameters": (
        FREE + "def t() -> R: ...",
        "signature = '()': must be (workspace: Path, params: Model)",
    ),
    "parameters in the wrong order": (
        WITH + "def t(params: P, workspace: Path) -> R: ...",
        "signature = '(params, workspace)': must be (workspace: Path, params: Model)",
    ),
    "a parameter too many": (
        WITH + "def t(workspace: Path, params: P, more: int) -> R: ...",
        "signature = '(workspace, params, more)': must be",
    ),
    "a parameter of another name": (FREE + "def t(p: P) -> R: ...", "signature = '(p)': must be"),
    "params without annotation": (FREE + "def t(params) -> R: ...", "parameter 'params': must be annotated"),
    "workspace without annotation": (
        WITH + "def t(workspace, params: P) -> R: ...",
        "parameter 'workspace': must be annotated",
    ),
    "no return annotation": (FREE + "def t(params: P): ...", "return value: must be annotated"),
    "workspace of another type": (
        WITH + "def t(workspace: str, params: P) -> R: ...",
        "parameter 'workspace' = str: must be a pathlib.Path or a perago.SparkWorkspace",
    ),
    "params that are no model": (
        FREE + "def t(params: dict) -> R: ...",
        "parameter 'params' = dict: must be a pydantic model",
    ),
    "params that are an optional model": (
        FREE + "def t(params: P | None) -> R: ...",
        "must be a pydantic model",
    ),
    "params that are any model": (
        FREE + "def t(params: BaseModel) -> R: ...",
        "parameter 'params' = BaseModel: must be a pydantic model",
    ),
    "a result that is no model": (
        FREE + "def t(params: P) -> int: ...",
        "return value = int: must be a pydantic model",
    ),
    "a result of None": (
        FREE + "def t(params: P) -> None: ...",
        "return value = NoneType: must be a pydantic",
    ),
    "params that are a root model": (
        FREE + "def t(params: Names) -> R: ...",
        "parameter 'params' = Names: must hold no root model: Names is one",
    ),
    "a result with a root model in it": (
        FREE + "def t(params: P) -> Nested: ...",
        "return value = Nested: must hold no root model: Names is one",
    ),
    "an annotation that cannot be resolved": (
        FREE + "def t(params: 'Nowhere') -> R: ...",
        "parameter 'params' = 'Nowhere': its annotation cannot be resolved",
    ),
    "an async function": (FREE + "async def t(params: P) -> R: ...", "function = t: must not be async"),
    "a generator": (FREE + "def t(params: P) -> R: yield 1", "function = t: must not be a generator"),
    "a class": (FREE + "class t: ...", "function = t: must be a function"),
    "a keyword-only parameter": (
        FREE + "def t(*, params: P) -> R: ...",
        "parameter 'params': must not be keyword-only",
    ),
    "a positional-only parameter": (
        FREE + "def t(params: P, /) -> R: ...",
        "parameter 'params': must not be positional-only",
    ),
    "variadic parameters": (
        FREE + "def t(params: P, *args: int) -> R: ...",
        "parameter 'args': must not be variadic",
    ),
    "variadic keywords": (
        FREE + "def t(params: P, **more: int) -> R: ...",
        "parameter 'more': must not be variadic",
    ),
    "a default": (
        FREE + "def t(params: P = P(a=1)) -> R: ...",
        "parameter 'params' = P(a=1): must not have a default",
    ),
    "a metrics parameter": (
        FREE + "def t(params: P, metrics: object) -> R: ...",
        "parameter 'metrics': is not supported: Perago counts attempts itself, and a task body records its own "
        "metrics with OpenTelemetry",
    ),
    # the decorator's arguments
    "metrics": (told(metrics="object()") + OK, "metrics: is not supported"),
    "an unknown field": (told(speed="3") + OK, "speed = 3: is not a field of @task, which has name,"),
    "an empty name": (told(name="''") + OK, "name = '': must be text and not blank"),
    "a blank name": (told(name="' '") + OK, "name = ' ': must be text and not blank"),
    "a name that is no text": (told(name="3") + OK, "name = 3: must be text"),
    "a name with a slash": (told(name="'a/b'") + OK, "name = 'a/b': must not hold path parts"),
    "a name with a backslash": (told(name=r"'a\\b'") + OK, "must not hold path parts"),
    "a name that is a path part": (told(name="'..'") + OK, "name = '..': must not hold path parts"),
    "a name with a line break": (told(name=r"'a\nb'") + OK, "must not begin or end with white space or hold"),
    "no owner": (told(owner_email="") + OK, "owner_email: is required"),
    "a blank owner": (told(owner_email="''") + OK, "owner_email = '': must be text and not blank"),
    "a description that is no text": (told(description="3") + OK, "description = 3: must be text"),
    "a version that is no text": (told(version="3") + OK, "version = 3: must be text"),
    "strict_params that is no flag": (
        told(strict_params="1") + OK,
        "strict_params = 1: must be True or False",
    ),
    "a workspace that is no spec": (
        told(workspace="'/a'") + OK_WORKSPACE,
        "workspace = '/a': must be a Work",
    ),
    "controls that are none": (told(controls="3") + OK, "controls = 3: must be a TaskControls"),
    "a workspace that the function does not take": (
        told(workspace="WorkspaceSpec()") + OK,
        "workspace: needs a function that takes one",
    ),
    "a workspace that is not declared": (told() + OK_WORKSPACE, "workspace: is required"),
    "a budget without a workspace": (
        control(f"publish_budget={budget()}"),
        "controls.publish_budget: needs workspace=WorkspaceSpec(…)",
    ),
    "direct placement without Spark": (
        spec("placement='direct'"),
        "workspace.placement = 'direct': is for Spark tasks",
    ),
    "two tasks of one name": (
        FREE + OK + FREE + "def u(params: P) -> R: ...",
        "name = 't': is taken by another task of this module, at line",
    ),
    "a decorator without arguments": ("@task\n" + OK, "@task: takes keyword arguments only"),
    # prefix
    "a prefix that climbs": (spec("prefix='/a/../b'"), "prefix = '/a/../b': must not hold '.' or '..'"),
    "a prefix with a dot": (spec("prefix='/a/./b'"), "must not hold '.' or '..'"),
    "a prefix with an empty part": (spec("prefix='/a//b'"), "prefix = '/a//b': must not hold empty parts"),
    "a prefix that ends in a slash": (spec("prefix='/a/'"), "prefix = '/a/': must not hold empty parts"),
    "an empty prefix": (spec("prefix=''"), "prefix = '': must not be empty"),
    "a prefix with a backslash": (spec(r"prefix='a\\b'"), "must use '/' between its parts"),
    "a prefix with a NUL": (spec(r"prefix='a\0b'"), "hold no control characters"),
    "a prefix among the actions": (
        spec("prefix='/_lakefs_actions/x'"),
        "prefix = '/_lakefs_actions/x': must not be inside _lakefs_actions/",
    ),
    "a read path that is no list": (
        spec("reads='plays'"),
        "WorkspaceSpec.reads = 'plays': must be a list of paths below the prefix, such as ('plays', 'songs')",
    ),
    "a read path that is no text": (spec("reads=['a', 3]"), "WorkspaceSpec.reads[1] = 3: must be text"),
    "an empty read path": (spec("reads=['']"), "WorkspaceSpec.reads[0] = '': must not be empty; leave the"),
    "an empty write path": (spec("writes=['a', '']"), "WorkspaceSpec.writes[1] = '': must not be empty"),
    "a read path that is absolute": (
        spec("reads=['/plays']"),
        "reads[0] = '/plays': must be relative to the",
    ),
    "a read path that climbs out": (
        spec("reads=['a/../../b']"),
        "reads[0] = 'a/../../b': must not lead out of the prefix: '..' is not allowed",
    ),
    "a write path that climbs": (spec("writes=['..']"), "writes[0] = '..': must not lead out of the prefix"),
    "a read path with a dot": (spec("reads=['./a']"), "reads[0] = './a': must not hold '.' or '..'"),
    "a read path that ends in a slash": (spec("reads=['a/']"), "reads[0] = 'a/': must not hold empty parts"),
    "a read path with a backslash": (spec(r"reads=['a\\b']"), "must use '/' between its parts"),
    "a read path that is a pattern": (spec("reads=['plays/*.csv']"), "must be a plain path, without '*'"),
    "a write path that is a pattern": (spec("writes=['{a,b}']"), "writes[0] = '{a,b}': must be a plain path"),
    "a read path with outer space": (
        spec("reads=[' a']"),
        "reads[0] = ' a': must not be empty, and must not",
    ),
    "a write path of Perago's own name": (
        spec("writes=['a/.perago-attempt.json']"),
        "writes[0] = 'a/.perago-attempt.json': must not name .perago-attempt.json, which is Perago's own",
    ),
    "a read path longer than a name may be": (spec("reads=['a' * 256]"), "longer than 255 bytes"),
    "a read path that is the actions": (
        spec("reads=['plays', '_lakefs_actions']"),
        "WorkspaceSpec.reads[1] = '_lakefs_actions': must not be inside _lakefs_actions/",
    ),
    "a write path in the actions": (
        spec("writes=['_lakefs_actions/gate.yaml']"),
        "WorkspaceSpec.writes[0] = '_lakefs_actions/gate.yaml': must not be inside _lakefs_actions/",
    ),
    "read_only with writes": (
        spec("read_only=True, writes=['a']"),
        "WorkspaceSpec.writes = ('a',): has no meaning with read_only=True",
    ),
    "writes that name nothing": (
        spec("writes=[]"),
        "WorkspaceSpec.writes = (): must name a path; a task that changes nothing has read_only=True",
    ),
    "reads that name nothing": (
        spec("reads=[]"),
        "WorkspaceSpec.reads = (): must name a path where no writes are given: the task would see nothing",
    ),
    "a check on a file outside the view": (
        spec(
            "reads=['plays'], writes=['out'], pre=[require_glob('plays/*'), require_file('plays-old/a.csv')]"
        ),
        "WorkspaceSpec.pre[1]: require_file('plays-old/a.csv') looks outside what the task sees (out, plays); name",
    ),
    "a check on a folder outside the view": (
        spec("prefix='/data', reads=['plays'], post=[require_dir('out')]"),
        "WorkspaceSpec.post[0]: require_dir('out') looks outside what the task sees (plays)",
    ),
    "a pattern outside the view": (
        spec("reads=['plays'], post=[forbid_glob('tmp/**')]"),
        "WorkspaceSpec.post[0]: forbid_glob('tmp/**', max_count=0) looks outside",
    ),
    "a pattern that fits nothing of the view": (
        spec("reads=['plays/2026'], pre=[require_glob('*/2025/*.csv')]"),
        "WorkspaceSpec.pre[0]: require_glob('*/2025/*.csv', min_count=1) looks outside",
    ),
    "a table check outside the view": (
        spec("reads=['plays'], pre=[require_rows('songs')]").replace(
            "workspace: Path", "workspace: SparkWorkspace"
        ),
        "WorkspaceSpec.pre[0]: require_rows('songs', min=1) looks outside what the task sees (plays)",
    ),
    "a table check on more than the view": (
        spec("reads=['plays/2026'], pre=[require_rows('plays')]").replace(
            "workspace: Path", "workspace: SparkWorkspace"
        ),
        "WorkspaceSpec.pre[0]: require_rows('plays', min=1) looks outside what the task sees (plays/2026)",
    ),
    "a table check on tables of which some may be outside": (
        spec("reads=['plays'], pre=[require_rows('pl*')]").replace(
            "workspace: Path", "workspace: SparkWorkspace"
        ),
        "WorkspaceSpec.pre[0]: require_rows('pl*', min=1) looks outside",
    ),
    "a read path that names no param": (
        partitioned("reads=['raw', 'raw/day={dya}']", fields="day: str; region: str"),
        "workspace.reads[1] = 'raw/day={dya}': {dya} is not a param of P, which has day, region; did you mean 'day'?",
    ),
    "a write path that names no param": (
        partitioned("writes=['{other}/{day}']"),
        "workspace.writes[0] = '{other}/{day}': {other} is not a param of P, which has day",
    ),
    "a template where there are no params": (
        partitioned(DAILY, fields="pass"),
        "{day} is not a param of P, which has none",
    ),
    "a template that is a property": (
        partitioned(DAILY, fields="month: str; day = property(lambda self: self.month)"),
        "{day} is not a param of P, which has month",
    ),
    "a brace that does not close": (spec("reads=['day={day']"), "= 'day={day': must be a plain path"),
    "a brace that does not open": (spec("reads=['day}']"), "= 'day}': must be a plain path"),
    "braces around nothing": (spec("reads=['day={}']"), "= 'day={}': must be a plain path"),
    "braces around no name": (spec("reads=['day={1}']"), "= 'day={1}': must be a plain path"),
    "braces with a format": (spec("reads=['day={a:03}']"), "= 'day={a:03}': must be a plain path"),
    "braces around a template": (spec("reads=['day={{a}}']"), "= 'day={{a}}': must be a plain path"),
    "a template beside a pattern": (spec("reads=['day={a}/*']"), "= 'day={a}/*': must be a plain path"),
    "a template below lakeFS's actions": (
        spec("reads=['_lakefs_actions/{a}']"),
        "must not be inside _lakefs_actions/",
    ),
    **{
        f"a template of type {annotation}": (
            partitioned(DAILY, fields=f"day: {annotation}", names=names),
            f"workspace.writes[0] = 'clean/day={{day}}': param 'day' of P {MUST_FILL} {shown}",
        )
        for annotation, shown, names in (
            ("datetime.datetime", "datetime", ""),
            ("datetime.time", "time", ""),
            ("str | None", "str | None", ""),
            ("typing.Optional[int]", "typing.Optional[int]", ""),
            ("str | int", "str | int", ""),
            ("float", "float", ""),
            ("decimal.Decimal", "Decimal", ""),
            ("bool", "bool", ""),
            ("bytes", "bytes", ""),
            ("list[str]", "list[str]", ""),
            ("typing.Any", "Any", ""),
            ("Inner", "Inner", "class Inner(BaseModel):\n    a: str"),
            ("Half", "Half", "class Half(enum.Enum):\n    A = 0.5"),
            ("Flags", "Flags", "class Flags(enum.Enum):\n    A = True"),
            ("typing.Literal['a', None]", "typing.Literal['a', None]", ""),
        )
    },
    "a template whose param may change between retries": (
        partitioned(
            DAILY,
            fields="day: datetime.date = Field(default_factory=datetime.date.today)",
            names="from pydantic import Field",
        ),
        "param 'day' of P must not have a default_factory: a retry could fill another path",
    ),
    "a check with a template that names no param": (
        partitioned(DAILY + ", post=[forbid_glob('clean/day={day}/{dya}.tmp')]"),
        "workspace.post[0] = 'clean/day={day}/{dya}.tmp': "
        "{dya} is not a param of P, which has day; did you mean 'day'?",
    ),
    "a check with a template of a type that fills no path": (
        partitioned(
            DAILY + ", post=[require_file('clean/day={day}/{rate}')]", fields="day: str; rate: float"
        ),
        f"param 'rate' of P {MUST_FILL} float",
    ),
    "a check outside the partition": (
        partitioned("reads=['raw/day={day}'], writes=['clean/day={day}'], pre=[require_file('other/a.csv')]"),
        "pre[0]: require_file('other/a.csv') looks outside what the task sees (raw/day={day}, clean/day={day})",
    ),
    "a check on another partition": (
        partitioned(SEEN + ", post=[require_glob('clean/hour={day}/*')]"),
        "post[0]: require_glob('clean/hour={day}/*', min_count=1) looks outside what the task sees (clean/day={day})",
    ),
    "a check on the partition of another param": (
        partitioned(SEEN + ", post=[require_dir('clean/day={region}')]", fields="day: str; region: str"),
        "post[0]: require_dir('clean/day={region}') looks outside",
    ),
    "a table check on all partitions": (
        partitioned(SEEN + ", post=[require_rows('clean')]").replace(
            "workspace: Path", "workspace: SparkWorkspace"
        ),
        "post[0]: require_rows('clean', min=1) looks outside what the task sees (clean/day={day})",
    ),
    "a foreign key outside the partition": (
        partitioned(SEEN + ", post=[require_foreign_key('clean/day={day}', 'a', 'songs')]").replace(
            "workspace: Path", "workspace: SparkWorkspace"
        ),
        "looks outside what the task sees (clean/day={day})",
    ),
    "a mistaken table check beside reads is told once": (
        spec("reads=['plays'], pre=[require_rows('/plays')]").replace(
            "workspace: Path", "workspace: SparkWorkspace"
        ),
        "require_rows table = '/plays': must be a path below the workspace's prefix",
    ),
    "a prefix that is no text": (spec("prefix=3"), "WorkspaceSpec.prefix = 3: must be text"),
    # the rest of the workspace
    "an unknown policy": (
        spec("on_abandoned='retry'"),
        "on_abandoned = 'retry': must be one of 'replace', 'supersede' or 'reuse'",
    ),
    "an unknown placement": (spec("placement='moon'"), "placement = 'moon': must be one of 'auto', 'local'"),
    "a policy for a read-only workspace": (
        spec("read_only=True, on_abandoned='reuse'"),
        "on_abandoned = 'reuse': has no meaning with read_only=True",
    ),
    "an unknown way with unsigned commits": (
        spec("unsigned='refus'"),
        "unsigned = 'refus': must be one of 'replace' or 'refuse'; did you mean 'refuse'?",
    ),
    "a way with unsigned commits for a read-only workspace": (
        spec("read_only=True, unsigned='refuse'"),
        "unsigned = 'refuse': has no meaning with read_only=True",
    ),
    "a replacement of unsigned commits by a policy that replaces none": (
        spec("on_abandoned='supersede', unsigned='replace'"),
        'unsigned = \'replace\': must be "refuse" with on_abandoned="supersede", which never replaces a commit',
    ),
    "an unknown way with an advanced branch": (
        spec("on_abandoned='supersede', on_advanced='merge'"),
        "on_advanced = 'merge': must be one of 'refuse' or 'rebase'",
    ),
    "a rebase that would take others' commits along": (
        spec("on_advanced='rebase'"),
        'on_advanced = \'rebase\': needs on_abandoned="supersede" or on_abandoned="reuse"',
    ),
    "a rebase of a read-only workspace": (
        spec("read_only=True, on_advanced='rebase'"),
        "on_advanced = 'rebase': has no meaning with read_only=True",
    ),
    "read_only that is no flag": (spec("read_only='yes'"), "read_only = 'yes': must be True or False"),
    "an unknown workspace field": (
        spec("path='/'"),
        "path = '/': is not a field of WorkspaceSpec, which has",
    ),
    # checks
    "an absolute pattern": (spec("pre=[require_file('/etc/x')]"), "'/etc/x': must be relative"),
    "a pattern with a drive": (spec("pre=[require_file('C:/x')]"), "'C:/x': must be relative"),
    "a pattern that escapes": (
        spec("pre=[require_glob('../*')]"),
        "require_glob pattern = '../*': must not lead",
    ),
    "an empty pattern": (spec("post=[forbid_glob('')]"), "forbid_glob pattern = '': must not be empty"),
    "a pattern with an empty part": (spec("post=[require_dir('a//b')]"), "must not hold empty parts"),
    "a pattern with a backslash": (spec(r"post=[require_dir('a\\b')]"), "must use '/' between its parts"),
    "a pattern with a glued double star": (
        spec("post=[require_glob('a/**.csv')]"),
        "'**' as a part of its own",
    ),
    "a pattern that is no text": (spec("post=[require_glob(3)]"), "require_glob pattern = 3: must be text"),
    "a negative count": (
        spec("pre=[require_glob('a', min_count=-1)]"),
        "require_glob min_count = -1: must be",
    ),
    "bounds that cross": (
        spec("pre=[require_glob('a', min_count=3, max_count=2)]"),
        "require_glob max_count = 2: must not be below min_count (3)",
    ),
    "forbid_glob without a number": (spec("pre=[forbid_glob('a', max_count=None)]"), "forbid_glob max_count"),
    "a check that is none": (spec("pre=[3]"), "WorkspaceSpec.pre[0] = 3: is not a check"),
    "a check of one argument": (
        spec("post=[require_file('a'), lambda workdir: None]"),
        "WorkspaceSpec.post[1] = <lambda>: must be callable as check(workdir, params)",
    ),
    "checks that are no list": (spec("pre=require_file('a')"), "must be a list of checks"),
    # controls
    "a negative retry count": (
        control("retry=RetryPolicy(count=-1)"),
        "RetryPolicy.count = -1: must be 0 or more",
    ),
    "a retry count that is text": (
        control("retry=RetryPolicy(count='3')"),
        "count = '3': must be a whole number",
    ),
    "a retry count that is a flag": (
        control("retry=RetryPolicy(count=True)"),
        "count = True: must be a whole",
    ),
    "an unknown retry logic": (
        control("retry=RetryPolicy(logic='RANDOM')"),
        "RetryPolicy.logic = 'RANDOM': must be one of 'FIXED', 'EXPONENTIAL_BACKOFF' or 'LINEAR_BACKOFF'",
    ),
    "a negative delay": (
        control("retry=RetryPolicy(delay_seconds=-5)"),
        "delay_seconds = -5: must be 0 or more",
    ),
    "a retry policy that is a number": (control("retry=3"), "TaskControls.retry = 3: must be a RetryPolicy"),
    "a negative time-out": (
        control("timeout=TimeoutPolicy(seconds=-1)"),
        "TimeoutPolicy.seconds = -1: must be 0",
    ),
    "an unknown time-out policy": (
        control("timeout=TimeoutPolicy(policy='X')"),
        "policy = 'X': must be one of",
    ),
    "a response time-out of 0": (
        control("timeout=TimeoutPolicy(response_seconds=0)"),
        "TimeoutPolicy.response_seconds = 0: must be 1 or more",
    ),
    "a response time-out above the time-out": (
        control("timeout=TimeoutPolicy(response_seconds=61, seconds=60)"),
        "TimeoutPolicy.response_seconds = 61: must not be above seconds (60)",
    ),
    "a response time-out above the total": (
        control("timeout=TimeoutPolicy(response_seconds=61, total_seconds=60)"),
        "TimeoutPolicy.response_seconds = 61: must not be above total_seconds (60)",
    ),
    "a time-out above the total": (
        control("timeout=TimeoutPolicy(response_seconds=5, seconds=61, total_seconds=60)"),
        "TimeoutPolicy.seconds = 61: must not be above total_seconds (60)",
    ),
    "half a rate limit": (
        control("limits=ExecutionLimits(rate_limit_per_frequency=5)"),
        "rate_limit_per_frequency = 5: must come together with rate_limit_frequency_in_seconds",
    ),
    "a negative limit": (control("limits=ExecutionLimits(concurrent_exec_limit=-1)"), "must be 0 or more"),
    "an unknown control": (
        control("speed=3"),
        "TaskControls.speed = 3: is not a field of TaskControls, which has",
    ),
    "a budget whose merge is too short": (
        told(
            workspace="WorkspaceSpec()",
            controls=f"TaskControls(publish_budget={budget(safety_margin_seconds=6)})",
        )
        + OK_WORKSPACE,
        "lakefs_merge_timeout_seconds = 10: must cover observed_merge_p99_seconds plus safety_margin_seconds (11)",
    ),
    "a budget with a field missing": (
        "BUDGET = PublishBudget(safety_margin_seconds=1)\n" + FREE + OK,
        "PublishBudget.observed_merge_p99_seconds: is required",
    ),
    "a budget with a time of 0": (
        f"BUDGET = {budget(heartbeat_interval_seconds=0)}\n" + FREE + OK,
        "PublishBudget.heartbeat_interval_seconds = 0: must be 1 or more",
    ),
    # settings of Spark
    "settings of Spark for a plain task": (
        told(workspace="WorkspaceSpec()", spark="SparkControls()") + OK_WORKSPACE,
        "spark: is for Spark tasks: (workspace: SparkWorkspace, params: Model) -> Model",
    ),
    "settings of Spark as a dict": (
        told(workspace="WorkspaceSpec()", spark="{'driver_memory': '4g'}") + OK_SPARK,
        "spark = {'driver_memory': '4g'}: must be a SparkControls",
    ),
    "a setting of Spark in @task itself": (
        told(workspace="WorkspaceSpec()", driver_memory="'4g'") + OK_SPARK,
        "say spark=SparkControls(driver_memory=…)",
    ),
    "a misspelt setting of Spark": (
        spark("driver_memroy='4g'"),
        "SparkControls.driver_memroy = '4g': is not a field of SparkControls, which has driver_memory, "
        "executor_memory, executor_cores, shuffle_partitions, packages, jars, py_files, archives, conf; "
        "did you mean 'driver_memory'?",
    ),
    "memory without a unit": (
        spark("driver_memory='4096'"),
        "SparkControls.driver_memory = '4096': must be a whole number with a unit k, m, g or t, such as '4g' or '1536m'",
    ),
    "memory in parts": (
        spark("driver_memory='1.5g'"),
        "driver_memory = '1.5g': must be a whole number with a unit",
    ),
    "memory as Spark's log has it": (
        spark("executor_memory='4gb'"),
        "executor_memory = '4gb': must be a whole",
    ),
    "memory as a number": (spark("executor_memory=4"), "SparkControls.executor_memory = 4: must be text"),
    "memory with which Spark does not start": (
        spark("driver_memory='400m'"),
        "driver_memory = '400m': must be '512m' or more: Spark does not start with less",
    ),
    "no cores": (spark("executor_cores=0"), "SparkControls.executor_cores = 0: must be 1 or more"),
    "partitions as text": (
        spark("shuffle_partitions='400'"),
        "shuffle_partitions = '400': must be a whole number",
    ),
    "a package outside a tuple": (
        spark("packages='a:b:1'"),
        "SparkControls.packages = 'a:b:1': must be a tuple of texts: ('a:b:1',)",
    ),
    "a package without a version": (
        spark("packages=('io.delta:delta-spark_2.13',)"),
        "SparkControls.packages[0] = 'io.delta:delta-spark_2.13': must be 'group:artifact:version'",
    ),
    "a folder of Python files": (
        spark("py_files=('src',)"),
        "py_files[0] = 'src': must be a .py, .zip or .egg file",
    ),
    "Python files elsewhere": (
        spark("py_files=('s3a://code/deps.zip',)"),
        "py_files[0] = 's3a://code/deps.zip': must be a file of this machine",
    ),
    "two jars in one text": (
        spark("jars=('a.jar,b.jar',)"),
        "jars[0] = 'a.jar,b.jar': must be a path or URI without",
    ),
    "a setting that is none of Spark's": (
        spark("conf={'sql.ansi.enabled': True}"),
        "SparkControls.conf['sql.ansi.enabled'] = 'true': is not a setting of Spark: they begin with 'spark.'",
    ),
    "a setting without a value": (spark("conf={'spark.sql.ansi.enabled': None}"), "must be text"),
    "a setting that has a field": (
        spark("conf={'spark.driver.memory': '4g'}"),
        "conf['spark.driver.memory'] = '4g': has a field: write SparkControls(driver_memory=…)",
    ),
    "a field of spark-submit among the settings": (
        spark("conf={'--driver-memory': '4g'}"),
        "has a field: write SparkControls(driver_memory=…)",
    ),
    **{
        f"a setting that Perago owns: {key}": (
            spark(f"conf={{{key!r}: 'x'}}"),
            f"conf[{key!r}] = 'x': {reason}",
        )
        for key, reason in {
            "spark.sql.sources.commitProtocolClass": "chooses how files are committed",
            "spark.sql.parquet.output.committer.class": "chooses how files are committed",
            "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "chooses how files are committed",
            "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": "chooses how files are committed",
            "spark.hadoop.fs.s3a.committer.name": "chooses how files are committed",
            "spark.hadoop.fs.s3a.access.key": "would put keys into the declaration",
            "spark.hadoop.fs.s3a.bucket.music.secret.key": "would put keys into the declaration",
            "spark.hadoop.fs.lakefs.secret.key": "would put keys into the declaration",
            "spark.hadoop.fs.s3a.aws.credentials.provider": "would put keys into the declaration",
            "spark.driver.host": "is an address of the machine that runs the worker",
            "spark.driver.bindAddress": "is an address of the machine that runs the worker",
            "spark.sql.warehouse.dir": "is a folder of the worker's own",
            "spark.local.dir": "is a folder of the worker's own",
            "spark.remote": "belongs to Spark Connect",
            "spark.api.mode": "belongs to Spark Connect",
            "spark.submit.deployMode": "belongs to spark-submit",
            "spark.submit.pyFiles": "has a field: write SparkControls(py_files=…)",
        }.items()
    },
    "MetricSpec": ("from perago import MetricSpec\n" + FREE + OK, "perago.MetricSpec: is not supported"),
    "MetricRecorder": (
        "from perago import MetricRecorder\n" + FREE + OK,
        "perago.MetricRecorder: is not supported",
    ),
}
NAMELESS = {
    "a budget with a field missing",
    "a budget with a time of 0",
    "MetricSpec",
    "MetricRecorder",
    "a decorator without arguments",
}
