"""Reporting a result: send, then drop the claim.  The one way, for a worker's courier and for attempts that run inline.

The claim goes only when the orchestrator has answered: until then a twin must find it taken.
"""

from __future__ import annotations

from perago.errors import OrchestratorNotFound
from perago.lake.base import Lake
from perago.orchestrator.base import AttemptsOwner
from perago.runtime.ending import Delivery, Parcel
from perago.runtime.own_branches import drop_quietly


def deliver(orchestrator: AttemptsOwner, lake: Lake, parcel: Parcel, *, worker_id: str) -> Delivery:
    """Send a result and drop its claim; `OrchestratorError`, and the claim stays, where there was no answer."""
    return finish(lake, send(orchestrator, parcel, worker_id=worker_id))


def send(orchestrator: AttemptsOwner, parcel: Parcel, *, worker_id: str) -> Delivery:
    """Send a result; its claim stays until `finish`."""
    try:
        accepted = orchestrator.complete(parcel.attempt, parcel.outcome, worker_id=worker_id)
    except OrchestratorNotFound as gone:
        return Delivery(parcel, accepted=False, reason=str(gone))
    return Delivery(parcel, accepted, "" if accepted else "the task was over already")


def finish(lake: Lake, delivery: Delivery) -> Delivery:
    """What follows the orchestrator's answer."""
    drop_claim(lake, delivery.parcel)
    return delivery


def give_up_on(lake: Lake, parcel: Parcel, why: str) -> Delivery:
    """Send a result no more: its attempt can take none, or keeps silent."""
    return finish(lake, Delivery(parcel, accepted=False, reason=why))


def drop_claim(lake: Lake, parcel: Parcel) -> None:
    """Let the attempt's next publisher claim; a parcel whose publish may be in flight has no claim to drop."""
    if parcel.claim is not None:
        drop_quietly(lake, parcel.claim.repository, parcel.claim.branch)
