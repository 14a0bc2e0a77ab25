"""The order of the tests: long ones start first, and those that wait run beside those that compute.

Tests that share something expensive form a group, which one worker runs as a whole; every other test is alone.
Some tests are heavy: they keep the cores busy as long as they run.  More workers than cores pay off because most others
wait, for a lease, a process or a server; so only as many heavy ones run at once as keep the cores busy
(`xdist_scheduler.py`).
"""

from __future__ import annotations

# Tests that share what a fixture starts, a JVM or servers, and run one after the other on one worker.
GROUPS = {
    "tests/spark/test_standalone.py": "standalone",
    "tests/spark/test_start_cluster.py": "standalone",
    "tests/spark/test_cluster_sharing.py": "standalone",
    "tests/spark/test_start_local.py": "start",
    "tests/spark/": "sessions",
    "tests/runtime/worker/test_outages.py": "own_servers",
    "tests/runtime/worker/test_fork_join.py": "crowd",
    "tests/test_ci_skips.py": "in_ci",
    "tests/cli/test_body_output.py": "bodies",
    "tests/cli/test_init_wheel.py": "wheel",
    "tests/lake/lakefs/test_presigned.py": "presigned",
    "tests/test_dev_servers_production.py": "backing",
    "tests/ui/": "browser",
}
# Long tests start first, so that none is left for the end: those of minutes, then a few quick ones, then those of seconds.
LONGEST = (
    "tests/spark/test_demonstration.py::test_the_demonstration",
    "tests/spark/test_tpch.py",
    "tests/spark/test_docs_page.py",
    "tests/spark/test_killed.py",
    "tests/spark/test_delta.py",
    "tests/spark/test_map_cluster.py",
    "tests/spark/test_map.py",
    "tests/runtime/worker/test_outages.py::test_200_workflows",
)
LONG = (
    "tests/docs/test_workflows_page.py",
    "tests/cli/test_run_resume.py::TestOnTheRealServers",
    "tests/cli/test_doctor.py::TestWrongServers::test_servers_that_never",
    "tests/cli/test_server_choice.py::test_a_server_that_is_not_lakefs",
    "tests/runtime/worker/test_self_check.py",
    "tests/runtime/worker/test_executions.py::test_a_spark_task",
    "tests/protocol/test_coverage.py",
    "tests/docs/test_site.py",
    "tests/docs/test_quick_start.py",
    "tests/runtime/attempt/test_memory.py",
    "tests/testing/test_plugin.py::test_all_spark",
    "tests/scenarios/test_lakefs_races.py",
    "tests/scenarios/test_lakefs_counts.py",
    "tests/lake/local/test_processes.py",
    "tests/runtime/worker/test_leases.py",
    "tests/runtime/worker/test_kills.py",
    "tests/runtime/worker/test_kills_concurrent.py",
    "tests/runtime/worker/hosted/test_hosted_worker.py",
    "tests/scenarios/test_in_flight.py",
    "tests/scenarios/test_lakefs_in_flight.py",
    "tests/scenarios/test_crashes.py",
    "tests/scenarios/test_interleavings.py",
    "tests/scenarios/test_random_histories.py",
)
# Behind them in the queues of the workers; see `turn_of`.
QUICK = "tests/protocol/test_publication.py"
HEAVY = (
    "tests/spark/",
    "tests/cli/test_init_wheel.py",
    "tests/docs/test_quick_start.py",
    "tests/runtime/worker/test_executions.py::test_a_spark_task",
    "tests/testing/test_plugin.py::test_all_spark",
    "tests/ui/",
)
HEAVY_AT_ONCE = 3


def group_of(nodeid: str) -> str:
    """Return the group that one worker runs as a whole; for a test that is alone, its own id."""
    alone = nodeid.startswith(LONGEST)
    found = [name for path, name in GROUPS.items() if nodeid.startswith(path) and not alone]
    return found[0] if found else nodeid


def is_heavy(nodeid: str) -> bool:
    """Return whether a test keeps a core or more busy as long as it runs."""
    return nodeid.startswith(HEAVY)


def turn_of(nodeid: str) -> int:
    """Return the place in the order.

    The scheduler gives each worker two tests at once: behind one that takes minutes there should be a quick one.
    """
    order = (*LONGEST, *GROUPS, QUICK, *LONG)
    return next((turn for turn, start in enumerate(order) if nodeid.startswith(start)), len(order))
