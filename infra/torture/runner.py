"""Plays rounds: one after the other in one world, each with a tenant of its own, and closes the books of each.

Owns the order of rounds, what is random about them, and what ends a round that does not end by itself. Knows no
scenario by name, and prints nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random

import httpx
import psycopg

from infra.local.pool import LineSink
from infra.local.postgres import PostgresError
from infra.torture import standing
from infra.torture.ledger import Account, balance
from infra.torture.scenario import Round, Scenario
from infra.torture.world import World, running

# What a scenario may take at most, and its draining.
PLAY_S = 60.0
DRAIN_S = 30.0
_LINES = 60
_NOTHING = balance({}, (), (), (), stored=())

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a round.

    Attributes:
        scenario: its name.
        seed: with which the scenario alone plays the same choices again.
        account: the books.
        in_flight: requests in flight when the (least crowded) fault struck.
        stuck: deliveries and replays that did not end in time.
        swept: how often only the sweep found what was due.
        seconds: how long it took, by the wall.
        problems: everything that is wrong; empty: every promise was kept.
        output: the last lines of the functions' output, if something is wrong.
    """

    scenario: str
    seed: int
    account: Account
    in_flight: int
    stuck: int
    swept: int
    seconds: float
    problems: tuple[str, ...]
    output: tuple[str, ...] = ()

    @property
    def void(self) -> bool:
        """Whether nothing was in flight at the fault, so that the round shows nothing."""
        return not self.in_flight

    @property
    def kept(self) -> bool:
        """Whether every promise was kept, and the round shows it."""
        return not self.problems and not self.void


def order(scenarios: Sequence[Scenario], rounds: int, seed: int, *, shuffled: bool) -> Iterator[tuple[Scenario, int]]:
    """Which scenario each round plays, and with which seed.

    Args:
        scenarios: to choose from; in turn, or by chance.
        rounds: how many.
        seed: of the first round; each further one's is one more.
        shuffled: by chance, every scenario once before one comes again.
    """
    rng = Random(seed)  # noqa: S311 - repeatable on purpose
    turns = cycle(scenarios) if not shuffled else _shuffled(scenarios, rng)
    yield from ((scenario, seed + place) for place, scenario in enumerate(islice(turns, rounds)))


async def play(
    plan: Iterator[tuple[Scenario, int]],
    on_line: LineSink = lambda _function, _line: None,
    on_round: Callable[[Scenario, int], None] = lambda _scenario, _seed: None,
) -> AsyncGenerator[Outcome]:
    """Play rounds in one world; in another one after a round that has left it unusable.

    Args:
        plan: the scenarios and their seeds.
        on_line: receives what the functions and the local stack print and log.
        on_round: is told each round before it is played.

    Raises:
        PostgresError: the world cannot be set up.
    """
    lines: deque[str] = deque(maxlen=_LINES)
    place = 0

    def keep(function: str, line: str) -> None:
        lines.append(f"{function}: {line}")
        on_line(function, line)

    with _logging_to(keep):
        while True:
            async with running(keep) as world:
                for scenario, seed in plan:
                    place += 1
                    lines.clear()
                    on_round(scenario, seed)
                    on_line("torture", f"{scenario.name}, seed {seed}")
                    outcome, usable = await _play(world, scenario, seed, f"round-{place}", lines)
                    yield outcome
                    if not usable:
                        break
                else:
                    return


async def _play(world: World, scenario: Scenario, seed: int, tenant: str, lines: deque[str]) -> tuple[Outcome, bool]:
    """Play a round. Gives what became of it, and whether the world can be used for another one."""
    began = time.monotonic()
    played = Round(world, Random(f"{scenario.name}/{seed}"), tenant)  # noqa: S311 - repeatable on purpose
    problems = played.problems
    try:
        async with asyncio.timeout(PLAY_S):
            await scenario.play(played)
    except TimeoutError as error:
        problems.append(f"the scenario did not come to its end: {str(error) or f'{PLAY_S:g} s were over'}")
    except Exception as error:
        logger.exception("%s with seed %d", scenario.name, seed)
        problems.append(f"the scenario failed: {type(error).__name__}: {error}")
    account, usable = _NOTHING, True
    try:
        await world.mend()
        played.release()
        await played.drain(DRAIN_S)
        account = await played.close(scenario.may_die)
        problems += [*account.problems, *await standing.leftovers(world.sql, tenant)]
        await _clean(world, played)
    except (psycopg.Error, httpx.HTTPError, PostgresError, OSError) as error:
        logger.exception("%s with seed %d", scenario.name, seed)
        problems.append(f"the books could not be closed: {type(error).__name__}: {error}")
        usable = False
    problems += [f"at a step: {type(error).__name__}: {error}" for error in world.proxy.failures]
    world.proxy.failures.clear()
    outcome = Outcome(
        scenario=scenario.name,
        seed=seed,
        account=account,
        in_flight=min(played.in_flight, default=0),
        stuck=account.pending,
        swept=played.swept,
        seconds=time.monotonic() - began,
        problems=tuple(problems),
        output=tuple(lines) if problems else (),
    )
    return outcome, usable


@contextmanager
def _logging_to(on_line: LineSink) -> Iterator[None]:
    """Have what the local stack and this package log go there, and not to the terminal."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            for line in self.format(record).splitlines():
                on_line(record.name, line)

    quiet, handler = logging.getLogger("infra"), Lines()
    before = quiet.propagate
    quiet.addHandler(handler)
    quiet.propagate = False
    try:
        yield
    finally:
        quiet.removeHandler(handler)
        quiet.propagate = before


async def _clean(world: World, played: Round) -> None:
    """Take away what is left of a round, so that the next one has nothing to do with it."""
    world.receivers.forget(played.path)
    await world.sql(
        "DELETE FROM forbear.queue q USING forbear.lanes l WHERE l.endpoint_id = q.endpoint_id AND l.tenant = %s",
        played.tenant,
    )
    await world.sql(
        "UPDATE forbear.replays SET state = 'cancelled', ended_at = forbear.now(), cancelled_at = forbear.now() "
        "WHERE ended_at IS NULL"
    )


def _shuffled(scenarios: Sequence[Scenario], rng: Random) -> Iterator[Scenario]:
    while True:
        yield from rng.sample(scenarios, len(scenarios))
