"""Every publication says which code made it, on both lakes."""

from __future__ import annotations

from perago.declare.code_origin import provenance_of
from perago.protocol.provenance import Provenance
from tests.support.worlds.run_world import FIVE, RunWorld, five_steps
from tests.support.worlds.world import World, abandon, make_task


def test_a_publication_and_its_staging_commit_have_the_code_and_the_environment(world: World) -> None:
    definition = make_task(on_abandoned="replace")
    world.start(definition)

    abandoned = world.lake.commit_at(world.repository, abandon(world, definition))
    world.execute(definition, world.retry(definition), image="songs:1")

    assert Provenance.of(abandoned.metadata) == provenance_of(definition)
    # After a replacement, the head is the staging commit itself.
    assert world.head().metadata["perago.phase"] == "try"
    assert Provenance.of(world.head().metadata) == provenance_of(definition, "songs:1")
    assert len(world.head().metadata["perago.code"].removesuffix("+dirty")) == 40


def test_the_record_of_an_attempt_without_a_publication_has_them_too(world: World) -> None:
    assert world.run(make_task(read_only=True)).seen.made_with.code


def test_a_published_run_has_what_its_steps_have_in_common(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    runs.start(five_steps())
    for image in ("songs:1", "songs:1", "songs:2", "songs:2", "songs:2", "songs:2"):
        assignment = runs.next()
        assert assignment is not None
        assert runs.execute(assignment, image=image).outcome.status == "COMPLETED"

    assert Provenance.of(world.head().metadata) == provenance_of(FIVE[0])
