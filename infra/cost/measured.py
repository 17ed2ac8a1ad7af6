"""What the cost model takes from measurements, and what it only estimates. The one place to bring up to date.

CPU times are those of one core of the machine that the results page names; bytes are the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of `forbear bench`.

    Attributes:
        as_of: when they were measured.
        ingest_ms_per_request: CPU of the ingest function for a request, whatever it holds.
        ingest_ms_per_event: the same for each event in it.
        claimer_us_per_attempt: CPU of the claimer for an attempt: claim, sign, send over plain HTTP, settle.
        database_us_per_event: CPU of PostgreSQL for storing an event, in a statement of its own.
        database_us_per_attempt: CPU of PostgreSQL for a delivery and its attempt: stored, claimed, settled.
        database_ms_per_claimer_second: CPU of PostgreSQL for a second in which a claimer is awake and looks for work.
        wal_bytes_per_event: WAL for an event beyond its payload, without full-page images, which Aurora has not.
        wal_bytes_per_attempt: WAL for a delivery and its attempt.
        stored_bytes_per_event: the database's size for an event beyond its payload, with indexes.
        stored_bytes_per_attempt: the same for a delivery and its attempt.
        log_bytes_per_request: what ingest logs and counts of a request, and the API's access log of it.
        log_bytes_per_claimer_minute: what a claimer logs and counts in a minute.
        log_bytes_per_waking: what it logs at its end.
    """

    as_of: str
    ingest_ms_per_request: float
    ingest_ms_per_event: float
    claimer_us_per_attempt: float
    database_us_per_event: float
    database_us_per_attempt: float
    database_ms_per_claimer_second: float
    wal_bytes_per_event: float
    wal_bytes_per_attempt: float
    stored_bytes_per_event: float
    stored_bytes_per_attempt: float
    log_bytes_per_request: float
    log_bytes_per_claimer_minute: float
    log_bytes_per_waking: float


MEASURED: Final = Measured(
    as_of="2026-11-30",
    ingest_ms_per_request=0.25,
    ingest_ms_per_event=0.056,
    claimer_us_per_attempt=115,
    database_us_per_event=400,
    database_us_per_attempt=95,
    database_ms_per_claimer_second=15,
    wal_bytes_per_event=560,
    wal_bytes_per_attempt=2_340,
    stored_bytes_per_event=375,
    stored_bytes_per_attempt=1_100,
    log_bytes_per_request=690,
    log_bytes_per_claimer_minute=2_500,
    log_bytes_per_waking=500,
)


@dataclass(frozen=True, slots=True)
class Estimated:
    """What cannot be measured outside AWS, or was not. Each errs on the dear side.

    Attributes:
        lambda_cpu: how much longer Lambda's CPU takes than the measuring machine's.
        tls_us_per_attempt: CPU for TLS, with a handshake for one attempt in ten.
        database_wait_ms: what an ingest request waits for Aurora's answer.
        start_s: what a claimer takes to start: the wake-up call, the database's first answers.
        sweep_s: how long a sweep takes, waiting for a database that was paused included.
        tick_s: how long a tick takes that finds another claimer awake.
        session_s: how long after its last use a connection keeps the database from counting as idle.
        vcpus_per_acu: what an ACU has, for it is sold as 2 GiB "and corresponding CPU".
        database_busy: up to which share of its CPU an ACU is used before there is another.
        claimer_busy: the same of a claimer.
        retry_wait_s: how long a claimer stays awake for a retry: the first gap of the default schedule.
        out_bytes: what an attempt sends besides the payload: headers, signature, TLS, TCP.
        back_bytes: what comes back for it.
        answer_bytes: what an ingest request's answer takes on the way out.
        series: metrics that a busy stack writes.
        sweep_series: those that a sweep writes.
        between_zones: the share of what goes between function and database that crosses zones.
    """

    lambda_cpu: float = 1.5
    tls_us_per_attempt: float = 100
    database_wait_ms: float = 6
    start_s: float = 0.3
    sweep_s: float = 20
    tick_s: float = 0.05
    session_s: float = 60
    vcpus_per_acu: float = 0.25
    database_busy: float = 0.6
    claimer_busy: float = 0.7
    retry_wait_s: float = 5
    out_bytes: float = 2_000
    back_bytes: float = 1_000
    answer_bytes: float = 700
    series: float = 23
    sweep_series: float = 7
    between_zones: float = 0.5


ESTIMATED: Final = Estimated()
