"""The model can fail: a few steps that it follows on the SQL as it is, and finds out when a line of that is missing.

    pytest -n 2 -m search tests/functions/queue/model

lets it search for the steps itself, which takes many minutes and is no part of the gate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.functions.builders import one
from tests.functions.queue.model.machine import QueueMachine, machine_on
from tests.functions.queue.model.world import World

type Connection = psycopg.Connection[Any]
type Step = Callable[[QueueMachine], None]

SEARCH = settings(
    max_examples=200,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Mutant:
    """A function of the schema with a text in it replaced wherever it stands, and steps that show it.

    The machine begins with three endpoints under the policy, two of them the tenant acme's.
    """

    function: str
    text: str
    by: str
    policy: str
    steps: tuple[Step, ...]


def post(machine: QueueMachine) -> None:
    machine.ingest_alike("acme", 3)


def claim(number: int) -> Step:
    return lambda machine: machine.claim_all(number)


def settle(number: int, kind: str) -> Step:
    return lambda machine: machine.settle_all(number, [kind])


def wait(seconds: float) -> Step:
    return lambda machine: machine.wait(seconds)


def reap(machine: QueueMachine) -> None:
    machine.move_claimer(1, "reap")


def post_keyed(machine: QueueMachine) -> None:
    machine.ingest([("acme", "ping", b"1", None, "k1")])


MUTANTS = {
    "a lease that has lapsed is honoured": Mutant(
        *("settle", "AND q.lease_until > v_now", "", "plain"), (post, claim(0), wait(46), settle(0, "ok"))
    ),
    "whoever settles needs no token": Mutant(
        *("settle", "AND q.lease_token IS NOT DISTINCT FROM r.token", "", "plain"),
        (post, claim(0), wait(46), reap, claim(1), settle(0, "ok")),
    ),
    "a wake makes no lane ready": Mutant(
        *("absorb_wakes", "= least(l.ready_at, greatest(w.due_at, forbear.barred_until(l)))", "= l.ready_at", "plain"),
        (post, claim(0)),
    ),
    # A batch's events are due a microsecond apart, the first before the claim.
    "a wake leaves the low-water marks": Mutant(
        *("absorb_wakes", "= least(l.low_water, w.due_at)", "= l.low_water", "plain"), (post, claim(0), post, claim(0))
    ),
    "what is taken over wakes nobody": Mutant(
        *("reap", "HAVING count(*) > 0", "HAVING false", "plain"), (post, claim(0), wait(46), reap)
    ),
    "what is in flight does not count": Mutant(
        *("claim", "w.width - f.in_flight", "w.width", "one at a time"), (post, claim(0), wait(1), claim(1))
    ),
    "a replay counts attempts from one again": Mutant(
        *("revive", "b.generation + 1, b.attempts,", "b.generation + 1, 0,", "plain"),
        (post, settle(0, "ok"), lambda machine: machine.replay_some([0, 1], "now")),
    ),
    "what ends in flight leaves no attempt": Mutant(
        *("finish", "WHERE g.lease_token IS NOT NULL", "WHERE false", "plain"),
        (post, claim(0), lambda machine: machine.cancel("endpoint", [0])),
    ),
    "retention drops events that are needed": Mutant(
        *("droppable_partitions", "CONTINUE WHEN v_used;", "", "plain"),
        (post, lambda machine: machine.wait_long(4 * 86_400.0, 1)),
    ),
    "a key stands for the latest event": Mutant(
        *("ingest", "WHERE k.created_at <= v_now - interval '24 hours'", "", "plain"), (post_keyed, post_keyed)
    ),
}


def apply(connection: Connection, mutant: Mutant) -> None:
    """Change the schema of a test's database."""
    text = one(
        connection,
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p"
        " WHERE p.pronamespace = 'forbear'::regnamespace AND p.proname = %s",
        mutant.function,
    )
    assert mutant.text in text
    connection.execute(text.replace(mutant.text, mutant.by))


def follow(world: World, mutant: Mutant) -> None:
    """Take a mutant's steps, looking at everything after each."""
    machine = QueueMachine(world)
    machine.start([mutant.policy] * 3)
    for step in mutant.steps:
        step(machine)
        machine.all_is_well()
    machine.teardown()


@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_finds_out_when(name: str, world: World) -> None:
    follow(world, MUTANTS[name])
    apply(world.connection, MUTANTS[name])
    with pytest.raises(AssertionError):
        follow(world, MUTANTS[name])


@pytest.mark.search
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_machine_finds_by_itself_that(name: str, world: World) -> None:
    apply(world.connection, MUTANTS[name])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine_on(world), settings=SEARCH)
