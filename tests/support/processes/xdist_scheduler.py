"""The pytest-xdist scheduler: a group goes to one worker as a whole, and few heavy tests run at once.

(pytest 9.2 gives xdist 3.8 no way to see the mark `xdist_group`, so groups go by the names of the tests.)
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from tests.support.processes.running_order import HEAVY_AT_ONCE, group_of, is_heavy


class Groups(LoadScopeScheduling):
    """Assigns groups in order, but skips heavy ones while enough of those are running."""

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a finished group, too: xdist goes through everything a worker has after every test."""
        super().mark_test_complete(node, item_index, duration)
        group = group_of(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][group].values()):
            del self.assigned_work[node][group]

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        under_way = (tests for groups in self.assigned_work.values() for tests in groups.values())
        if sum(_are_heavy(tests) and not all(tests.values()) for tests in under_way) >= HEAVY_AT_ONCE:
            light = next((group for group, tests in self.workqueue.items() if not _are_heavy(tests)), None)
            if light is not None:
                self.workqueue.move_to_end(light, last=False)
        super()._assign_work_unit(node)


def _are_heavy(tests: dict[str, bool]) -> bool:
    """Return whether a group is heavy: all of its tests are, or none."""
    return is_heavy(next(iter(tests)))
