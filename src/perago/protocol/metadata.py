"""The keys that Perago writes to commit metadata.  docs/publication.md explains each of them.

Commits outlive Perago versions, so a key must never change its meaning.
"""

from __future__ import annotations

PHASE = "perago.phase"
KEY = "perago.logical_task_key"
TASK_ID = "perago.task_id"
RETRY_COUNT = "perago.retry_count"
SCHEDULED = "perago.scheduled_time"
INPUT_REF = "perago.input_ref"
TARGET_BRANCH = "perago.target_branch"
PREFIX = "perago.prefix"
WRITES = "perago.writes"
"""The object paths that the task may change, as a JSON list.  A path that ends in `/` or is empty is a prefix."""
STAGING_BRANCH = "perago.staging_branch"
STAGING_COMMIT = "perago.staging_commit"
EXPECTED_HEAD = "perago.expected_head"
SUPERSEDES = "perago.supersedes"
EXECUTION_ID = "perago.execution_id"
DIGEST = "perago.input_digest"
FENCE = "perago.fence"
RESULT = "perago.result"
"""The task's result.  Present only if the policy records results."""
REBASED_OVER = "perago.rebased_over"
STAGING_BASE = "perago.staging_base"
MERGED_BRANCH = "perago.merged_branch"
"""The branch, tag or commit that `perago merge` merged, as the user named it."""
MERGED_COMMIT = "perago.merged_commit"
RESTORED_COMMIT = "perago.restored_commit"
"""The commit from which `perago restore` took the objects."""
PUBLISH_TRIES = "perago.publish_tries"
"""The number of the publish try that landed, counting from 1.

Present, like `REBASED_OVER` and `STAGING_BASE`, only if the task may publish on top of others' commits.
"""
RUN_COMMIT = "perago.run_commit"
"""The last commit of the run that a publication of a whole run contains."""
TASK = "perago.task"
"""The task's name.  With the keys up to `LEDGER_KEY`, it makes the commit an entry of the ledger (`protocol/ledger`)."""
VERSION = "perago.version"
READS = "perago.reads"
"""The object paths that the task saw, as a JSON list like `WRITES`."""
LEDGER_KEY = "perago.ledger_key"
"""The params that `WorkspaceSpec(ledger_key=…)` names, as a JSON object."""
PARAMS_DIGEST = "perago.params_digest"
CODE_DIGEST = "perago.code_digest"
"""A digest of the task's own sources, `version` if the task declares one, or empty if the sources are unknown."""
RUN_ENTRIES = "perago.run_entries"
"""The ledger entries of the run that a publication of a whole run contains, as a JSON list.

It is `tag` if there are too many: then they are read from the run's own commits.
"""
RUN_STEPS = "perago.run_steps"
"""The steps of that run that published, as a JSON list of `[step, commit]`, oldest first."""
