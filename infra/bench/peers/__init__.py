"""The same job on queue libraries that people would build it on: procrastinate, pgqueuer, graphile-worker, pg-boss.

The job: payloads of 1 KB lie in a queue in the run's PostgreSQL (fsync and synchronous_commit on, for all of them); one
worker process POSTs each to the run's receiver and writes down that it is done. The time is the worker's own, from
when it begins to when the end of the last job is committed; starting the process is not in it. Each has a database of
its own on the server and is set up for throughput as its own manual or benchmark says; the figures say how. Forbear's
worker is the claimer's real handler. Repeats go round: each of them once, then each of them again. A ratio is
Forbear's rate over the other's in the same round.

The others do less: none signs, keeps each attempt as evidence, checks addresses, or has a breaker, limits and fairness
for each endpoint. What they do better (any job, in the language of the application) is not measured.

They are installed, with pinned versions, into a scratch environment in the user's cache when they are asked for, and
are no dependency. One that cannot be installed or fails delivers nothing and says why; the others are measured.
"""

from infra.bench.peers.measuring import measure

__all__ = ["measure"]
