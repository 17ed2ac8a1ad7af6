"""The replay function, called as its function URL calls it, and the steps that the claimer runs, on a real database."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import replay
from forbear import replays
from forbear.db import statement
from forbear.ids import Prefix, decode, encode
from forbear.maintenance import drop_old_partitions
from forbear.models.replays import ReplayIn
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.conftest import remembering
from tests.functions.events import body_of, http_event
from tests.functions.finished import attempt_all, make_finished, reads

type Connection = psycopg.Connection[Any]
type Connect = Callable[[], Connection]
# Of a delivery: endpoint's name, event type, state, reason, seconds since it was made.
type Attributes = tuple[str, str, str, str | None, float]


@pytest.fixture
def role() -> str:
    """Nothing here takes more rights than the function's own."""
    return "forbear_replay"


@pytest.fixture
def woken(handlers: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever the replay function invokes a claimer."""
    calls: list[object] = []
    handlers.setattr("forbear.waking.invoke_claimer", remembering(calls))
    return calls


pytestmark = pytest.mark.usefixtures("woken")


def call(method: str, body: object = None, **query: object) -> tuple[int, Any]:
    event = http_event(
        method,
        "/",
        query={name: str(value) for name, value in query.items()},
        headers={"content-type": "application/json"},
        body=b"" if body is None else json.dumps(body).encode(),
    )
    result = replay.handler(event | {"routeKey": "$default"}, None)
    return result["statusCode"], body_of(result)


def replayed(body: object, **query: object) -> dict[str, Any]:
    status, answer = call("POST", body, **query)
    assert status == 202, answer
    return dict(answer)


def progress(replay_id: str) -> dict[str, Any]:
    status, answer = call("GET", id=replay_id)
    assert status == 200, answer
    return dict(answer)


def shown(ids: list[UUID]) -> list[str]:
    return [encode(Prefix.DELIVERY, one_id) for one_id in ids]


def endpoint(endpoint_id: UUID) -> str:
    return encode(Prefix.ENDPOINT, endpoint_id)


def step(connection: Connection, limit: int = 1000) -> int | None:
    """Run the step that is due, as the claimer does."""
    walked = one(connection, "SELECT forbear.replay_step(%s)", limit)
    assert walked is None or isinstance(walked, int)
    return walked


def pending(connection: Connection) -> list[UUID]:
    """The queue, in the order in which it becomes due."""
    return [row[0] for row in connection.execute("SELECT id FROM forbear.queue ORDER BY due_at, id")]


def everything(connection: Connection) -> list[Any]:
    """All that a replay could change."""
    return [
        connection.execute(f"SELECT * FROM forbear.{table} ORDER BY 1, 2").fetchall()
        for table in ("queue", "history", "queue_attempts", "history_attempts", "wakes", "replays", "claimers")
    ]


def test_a_dead_delivery_gets_a_new_generation_with_the_same_event_and_keeps_its_attempts(
    connection: Connection, database_url: str
) -> None:
    make_endpoint(connection)
    (event_id,) = post(connection, b'{"z":1,"a":2}', expires_at=datetime.now(UTC) + timedelta(hours=1))
    attempt_all(database_url, "retry")
    move_clock(connection, minutes=2)
    (dead,) = attempt_all(database_url, "dead")

    answer = replayed({"deliveries": shown([dead])})

    assert (answer["state"], answer["matched"], answer["unchanged"], answer["unknown"]) == ("done", 1, 0, [])
    row = connection.execute(
        "SELECT event_id, generation, attempts, tries, limited, lost, started_at, expires_at, replay_id,"
        " due_at <= forbear.now() FROM forbear.queue WHERE id = %s",
        (dead,),
    ).fetchone()
    assert row == (event_id, 2, 2, 0, 0, 0, None, None, decode(Prefix.REPLAY, answer["id"]), True)
    assert attempt_all(database_url, "delivered") == [dead]
    assert connection.execute(
        "SELECT number, generation, verdict FROM forbear.history_attempts ORDER BY number"
    ).fetchall() == [(1, 1, "retry"), (2, 1, "permanent"), (3, 2, "success")]
    assert one(connection, "SELECT count(*) FROM forbear.queue_attempts") == 0


def test_replaying_again_what_has_ended_again_makes_another_generation(
    connection: Connection, database_url: str
) -> None:
    make_endpoint(connection)
    post(connection, b"{}")
    (delivery,) = attempt_all(database_url, "delivered")
    for generation in (2, 3):
        assert replayed({"deliveries": shown([delivery])})["matched"] == 1
        assert attempt_all(database_url, "delivered" if generation == 2 else "dead") == [delivery]
    assert replayed({"filter": {"tenant": "acme"}})["matched"] == 1
    assert attempt_all(database_url, "delivered") == [delivery]
    assert connection.execute("SELECT generation, attempts FROM forbear.history").fetchall() == [(4, 4)]
    assert one(connection, "SELECT array_agg(number ORDER BY number) FROM forbear.history_attempts") == [1, 2, 3, 4]


def test_replaying_what_is_pending_or_being_sent_changes_nothing_and_says_so(
    connection: Connection, woken: list[object]
) -> None:
    make_endpoint(connection)
    post(connection, b"{}", b"{}")
    connection.execute("SELECT FROM forbear.claim(1, 1000000, 10)")
    before = connection.execute("SELECT * FROM forbear.queue ORDER BY id").fetchall()
    answer = replayed({"deliveries": shown(pending(connection))})
    assert (answer["state"], answer["matched"], answer["unchanged"]) == ("done", 0, 2)
    assert {one["because"] for one in answer["unchanged_deliveries"]} == {"pending"}
    assert connection.execute("SELECT * FROM forbear.queue ORDER BY id").fetchall() == before
    assert woken == []


def test_unknown_deliveries_are_listed_and_if_there_are_no_others_it_is_404(connection: Connection) -> None:
    (dead,) = make_finished(connection, make_endpoint(connection))
    strangers = sorted([uuid4(), one(connection, "SELECT forbear.new_id()")])
    answer = replayed({"deliveries": shown([*strangers, dead, dead])})
    assert (answer["matched"], answer["deliveries"], answer["unknown"]) == (1, 1, shown(strangers))
    status, problem = call("POST", {"deliveries": shown(strangers)})
    assert (status, problem["unknown"]) == (404, shown(strangers))


def test_what_cannot_be_sent_again_is_left_and_said_so(connection: Connection) -> None:
    gone = make_endpoint(connection)
    (of_deleted,) = make_finished(connection, gone)
    (without_event,) = make_finished(connection, make_endpoint(connection))
    connection.execute("UPDATE forbear.lanes SET deleted_at = forbear.now() WHERE endpoint_id = %s", (gone,))
    connection.execute("UPDATE forbear.endpoints SET deleted_at = forbear.now() WHERE id = %s", (gone,))
    connection.execute(
        "DELETE FROM forbear.events WHERE id = (SELECT event_id FROM forbear.history WHERE id = %s)", (without_event,)
    )
    answer = replayed({"deliveries": shown([of_deleted, without_event])})
    assert (answer["matched"], answer["unchanged"]) == (0, 2)
    assert answer["unchanged_deliveries"] == [
        {"id": shown([of_deleted])[0], "because": "endpoint_deleted"},
        {"id": shown([without_event])[0], "because": "event_gone"},
    ]
    assert replayed({"filter": {"tenant": "acme"}})["matched"] == 0
    assert pending(connection) == []
    assert call("POST", {"filter": {"endpoint": endpoint(gone)}})[0] == 409
    assert call("POST", {"filter": {"endpoint": endpoint(uuid4())}})[0] == 404


UNCLEAR: list[dict[str, Any]] = [
    {},
    {"filter": {}},
    {"filter": {"reason": "exhausted"}},
    {"filter": {"all": True, "tenant": "acme"}},
    {"filter": {"tenant": "acme", "status": "delivered", "reason": "exhausted"}},
    {"filter": {"tenant": "acme", "status": "pending"}},
    {"filter": {"tenant": "acme", "reason": "bored"}},
    {"filter": {"tenant": "acme", "type": "a*"}},
    {"filter": {"tenant": "acme", "since": "yesterday"}},
    {"filter": {"tenant": "acme", "since": "2030-01-02T00:00:00Z", "until": "2030-01-01T00:00:00Z"}},
    {"filter": {"tenant": "acme", "colour": "red"}},
    {"filter": {"tenant": "acme"}, "rate": 0},
    {"filter": {"tenant": "acme"}, "rate": 1e9},
    {"filter": {"tenant": "acme"}, "at": 12},
    {"deliveries": []},
    {"deliveries": ["dlv_nonsense"]},
    {"deliveries": shown([uuid4()] * 1001)},
    {"deliveries": shown([uuid4()]), "filter": {"tenant": "acme"}},
]


def test_an_order_that_is_not_clear_is_refused_and_changes_nothing(connection: Connection) -> None:
    make_finished(connection, make_endpoint(connection))
    before = everything(connection)
    for body in UNCLEAR:
        assert call("POST", body)[0] == 422, body
    assert everything(connection) == before


def test_everybodys_deliveries_are_replayed_only_if_all_says_so(connection: Connection) -> None:
    ids = [make_finished(connection, make_endpoint(connection, tenant=tenant))[0] for tenant in ("acme", "other")]
    answer = replayed({"filter": {"all": True}})
    assert (answer["matched"], answer["filter"]["all"]) == (2, True)
    assert sorted(pending(connection)) == sorted(ids)


def test_a_filter_takes_what_it_says_and_nothing_else(connection: Connection) -> None:
    """Every column of the filter, alone and together, against the same choice made in Python."""
    start = datetime.now(UTC)
    endpoints = {name: make_endpoint(connection, tenant=name[:4]) for name in ("acme1", "acme2", "othe1")}
    made: list[tuple[UUID, Attributes]] = []
    for name, endpoint_id in endpoints.items():
        for kind in ("order.paid", "order.paid.late", "orders"):
            for state, reason in (("dead", "exhausted"), ("dead", "gone"), ("delivered", None), ("cancelled", None)):
                for ago_s in (3000.0, 90000.0):
                    (delivery,) = make_finished(
                        *(connection, endpoint_id), state=state, reason=reason, event_type=kind, made_ago_s=ago_s
                    )
                    made.append((delivery, (name, kind, state, reason, ago_s)))
    day_ago = (start - timedelta(hours=24)).isoformat()

    def expected(choose: Callable[[str, str, str, str | None, float], bool]) -> list[UUID]:
        return sorted(delivery for delivery, attributes in made if choose(*attributes))

    cases: list[tuple[dict[str, Any], list[UUID]]] = [
        ({"tenant": "acme"}, expected(lambda n, k, s, r, a: n[:4] == "acme" and s == "dead")),
        ({"endpoint": endpoint(endpoints["acme1"])}, expected(lambda n, k, s, r, a: n == "acme1" and s == "dead")),
        (
            {"tenant": "othe", "endpoint": endpoint(endpoints["othe1"]), "status": "delivered"},
            expected(lambda n, k, s, r, a: n == "othe1" and s == "delivered"),
        ),
        ({"all": True, "status": "cancelled"}, expected(lambda n, k, s, r, a: s == "cancelled")),
        ({"all": True, "reason": "gone"}, expected(lambda n, k, s, r, a: r == "gone")),
        ({"all": True, "type": "order.paid"}, expected(lambda n, k, s, r, a: k == "order.paid" and s == "dead")),
        ({"all": True, "type": "order.*"}, expected(lambda n, k, s, r, a: k != "orders" and s == "dead")),
        ({"all": True, "since": day_ago}, expected(lambda n, k, s, r, a: a == 3000 and s == "dead")),
        ({"all": True, "until": day_ago}, expected(lambda n, k, s, r, a: a == 90000 and s == "dead")),
        (
            {"tenant": "acme", "type": "order.*", "reason": "gone", "since": day_ago},
            expected(lambda n, k, s, r, a: n[:4] == "acme" and k != "orders" and r == "gone" and a == 3000),
        ),
        ({"tenant": "nobody"}, []),
    ]
    for wanted, deliveries in cases:
        status, counted = call("POST", {"filter": wanted, "dry_run": True})
        assert (status, counted["matched"], counted["more"]) == (200, len(deliveries), False), wanted
        with connection.transaction(force_rollback=True):
            replay_id = connection.execute(
                statement("create_replay"),
                {
                    "kind": "replay",
                    **replays._selection(replay.database(), ReplayIn.model_validate({"filter": wanted}), tenant=None),
                },
            ).fetchone()
            assert replay_id is not None
            while one(connection, "SELECT forbear.step_replay(%s, 7)", replay_id[0]) is not None:
                pass
            assert sorted(pending(connection)) == deliveries, wanted
            assert one(connection, "SELECT state || matched FROM forbear.replays") == f"done{len(deliveries)}"


def test_a_dry_run_counts_and_changes_nothing(connection: Connection, handlers: pytest.MonkeyPatch) -> None:
    endpoint_id = make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 30)
    post(connection, b"{}")
    stranger = one(connection, "SELECT forbear.new_id()")
    before = everything(connection)
    order = {"filter": {"endpoint": endpoint(endpoint_id)}, "dry_run": True, "rate": 5, "at": "2035-01-01T00:00:00Z"}
    nothing: dict[str, Any] = {"unknown": [], "unchanged_deliveries": []}
    assert call("POST", order) == (200, {"dry_run": True, "matched": 30, "more": False, **nothing})
    status, answer = call("POST", {"deliveries": shown([*dead[:2], *pending(connection), stranger]), "dry_run": True})
    assert (status, answer["matched"], answer["unknown"]) == (200, 2, shown([stranger]))
    assert [one["because"] for one in answer["unchanged_deliveries"]] == ["pending"]
    # A count stops at a bound, and says so.
    handlers.setattr(replays, "COUNT_TO", 20)
    handlers.setattr(replays, "COUNT_ROWS", 11)
    status, answer = call("POST", order)
    assert (status, answer["more"]) == (200, True)
    assert 20 <= answer["matched"] < 30
    assert everything(connection) == before


def test_thousands_are_replayed_in_steps_in_the_order_of_their_making(
    connection: Connection, woken: list[object]
) -> None:
    endpoint_id = make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 7000, attempts=1)

    answer = replayed({"filter": {"endpoint": endpoint(endpoint_id)}})
    # The call runs the first steps itself and leaves the others to the claimer, which it calls.
    assert (answer["state"], len(woken)) == ("running", 1)
    assert 4900 <= answer["matched"] <= 5000
    assert answer["still_pending"] == {"count": answer["matched"], "more": False}
    counts = []
    while step(connection) is not None:
        counts.append(one(connection, "SELECT count(*) FROM forbear.queue"))
    assert counts[-1] == 7000
    assert all(after - before <= 1000 for before, after in pairwise(counts))

    ended = progress(answer["id"])
    assert (ended["state"], ended["matched"], ended["unchanged"], ended["at"]) == ("done", 7000, 0, None)
    assert pending(connection) == dead
    # A lane's low-water mark can pass each of them; a step wakes its lanes with one row.
    assert one(connection, "SELECT count(DISTINCT due_at) FROM forbear.queue") == 7000
    assert one(connection, "SELECT max(due_at) <= forbear.now() FROM forbear.queue")
    assert one(connection, "SELECT count(*) FROM forbear.wakes") <= 8
    assert one(connection, "SELECT count(*) FROM forbear.queue_attempts") == 7000
    assert one(connection, "SELECT count(*) FROM forbear.history_attempts") == 0
    assert step(connection) is None


@pytest.mark.parametrize("statistics", ["none", "stale", "fresh"])
def test_a_step_reads_no_more_than_its_share_however_much_there_is(connection: Connection, statistics: str) -> None:
    """By the server's own counters: no table is scanned, and the rows fetched do not grow with the tables."""
    endpoint_id, busy = make_endpoint(connection), make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 12_000, attempts=1)
    if statistics == "stale":  # whatever there is, it is this endpoint's
        connection.execute("ANALYZE")
    make_finished(connection, busy, 8_000, attempts=0, made_ago_s=3600)
    make_finished(connection, endpoint_id, 5_000, state="delivered", attempts=0, made_ago_s=1e5, ended_ago_s=9e4)
    if statistics == "fresh":
        connection.execute("ANALYZE")
    for order, rows, blocks in (
        # Looked at, locked, moved: three times a row, and its event.
        ({"filter": {"endpoint": endpoint(endpoint_id), "type": "order.*"}}, 4100, 40_000),
        ({"filter": {"tenant": "acme", "status": "delivered", "type": "nothing"}}, 1100, 5000),
        ({"deliveries": shown(dead[::-7][:1000])}, 4100, 40_000),
    ):
        # So that no step runs before we look.
        answer = replayed({**order, "at": (datetime.now(UTC) + timedelta(hours=1)).isoformat()})
        replay_id = decode(Prefix.REPLAY, answer["id"])
        for _ in range(1 if "deliveries" in order else 4):
            with connection.transaction():
                before = reads(connection)
                assert one(connection, "SELECT forbear.step_replay(%s, 1000)", replay_id) >= 1000
                read = reads(connection) - before
            assert read.scanned == 0
            assert read.most_fetched <= rows, order
            assert read.index_blocks <= blocks, order
        status, _ = call("DELETE", id=answer["id"])
        assert status == 200


def test_with_a_rate_they_become_due_one_after_the_other_and_a_step_takes_ten_seconds_worth(
    connection: Connection,
) -> None:
    endpoint_id = make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 50)
    connection.execute("UPDATE forbear.clock SET frozen_at = forbear.now()")
    start = one(connection, "SELECT forbear.now()")

    answer = replayed({"filter": {"endpoint": endpoint(endpoint_id)}, "rate": 2})
    assert (answer["state"], answer["matched"]) == ("running", 20)
    assert step(connection) is None
    for seconds, matched in ((10, 40), (20, 50)):
        connection.execute("UPDATE forbear.clock SET frozen_at = %s", (start + timedelta(seconds=seconds),))
        assert step(connection) is not None
        assert progress(answer["id"])["matched"] == matched
    rows = connection.execute("SELECT id, due_at FROM forbear.queue ORDER BY due_at").fetchall()
    assert rows == [(delivery, start + n * timedelta(seconds=0.5)) for n, delivery in enumerate(dead)]


@pytest.mark.parametrize("rate", [0.001, 0.3, 100, 100_000])
def test_any_rate_gets_everything_out_once(connection: Connection, rate: float) -> None:
    dead = make_finished(connection, make_endpoint(connection), 30)
    answer = replayed({"deliveries": shown(dead), "rate": rate})
    while step(connection) is not None or progress(answer["id"])["state"] != "done":
        move_clock(connection, seconds=1 + 1 / rate)
    assert pending(connection) == dead
    assert progress(answer["id"])["matched"] == 30


def test_a_replay_with_a_time_waits_and_selects_then(
    connection: Connection, database_url: str, woken: list[object]
) -> None:
    endpoint_id = make_endpoint(connection)
    post(connection, b"{}")
    at = (one(connection, "SELECT forbear.now()") + timedelta(hours=1)).astimezone(UTC)
    orders: list[dict[str, Any]] = [
        {"filter": {"endpoint": endpoint(endpoint_id)}},
        {"deliveries": shown(pending(connection))},
    ]
    answers = [replayed({**order, "at": at.isoformat()}) for order in orders]
    assert len(woken) == 1  # it sets the schedule for then, although nothing is due now
    for answer in answers:
        assert (answer["state"], answer["matched"], answer["unchanged_deliveries"]) == ("waiting", 0, [])
        assert answer["at"] == at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    (dead,) = attempt_all(database_url, "dead")
    assert step(connection) is None
    assert one(connection, "SELECT replay_at FROM forbear.outlook(gen_random_uuid())") == at
    move_clock(connection, hours=1)
    while step(connection) is not None:
        pass
    assert pending(connection) == [dead]
    assert sorted(progress(answer["id"])["matched"] for answer in answers) == [0, 1]


def test_a_filter_takes_what_had_ended_when_it_started(connection: Connection, database_url: str) -> None:
    """What it put back and what dies meanwhile is not taken, on either side of where it stands."""
    endpoint_id = make_endpoint(connection)
    early = make_finished(connection, endpoint_id, 10)
    post(connection, b"{}")
    answer = replayed({"filter": {"endpoint": endpoint(endpoint_id)}, "rate": 0.5})
    assert answer["matched"] == 5
    move_clock(connection, seconds=10)
    died = attempt_all(database_url, "dead")
    assert set(early[:5]) < set(died)
    assert len(died) == 6
    for _ in range(3):
        step(connection)
        move_clock(connection, seconds=10)
    ended = progress(answer["id"])
    assert (ended["state"], ended["matched"], ended["unchanged"]) == ("done", 10, 0)
    assert pending(connection) == early[5:]


def test_progress_and_the_list_show_what_was_asked_for_and_how_far_it_has_come(
    connection: Connection, database_url: str
) -> None:
    endpoint_id = make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 3)
    wanted = {"endpoint": endpoint(endpoint_id), "type": "order.*", "since": "2020-01-01T01:00:00+01:00"}
    first = replayed({"filter": wanted})
    second = replayed({"deliveries": shown(dead)})
    assert first["filter"] == {
        "tenant": "acme",
        "endpoint": endpoint(endpoint_id),
        "all": False,
        "type": "order.*",
        "status": "dead",
        "reason": None,
        "since": "2020-01-01T00:00:00.000Z",
        "until": None,
    }
    assert (first["kind"], first["deliveries"], second["deliveries"], second["filter"]) == ("replay", None, 3, None)
    attempt_all(database_url, "delivered")
    reading = progress(first["id"])
    assert (reading["state"], reading["matched"], reading["still_pending"]["count"]) == ("done", 3, 0)
    assert all(reading[name].endswith("Z") for name in ("created_at", "started_at", "ended_at"))
    status, listed = call("GET")
    assert (status, [item["id"] for item in listed["items"]]) == (200, [second["id"], first["id"]])
    assert [item["id"] for item in call("GET", limit=1)[1]["items"]] == [second["id"]]


def test_another_tenants_deliveries_endpoints_and_replays_look_as_if_there_were_none(connection: Connection) -> None:
    theirs, ours = make_endpoint(connection, tenant="other"), make_endpoint(connection)
    (their_dead,), (our_dead,) = make_finished(connection, theirs), make_finished(connection, ours)
    assert call("POST", {"deliveries": shown([their_dead])}, tenant="acme")[0] == 404
    assert replayed({"deliveries": shown([their_dead, our_dead])}, tenant="acme")["unknown"] == shown([their_dead])
    assert call("POST", {"filter": {"endpoint": endpoint(theirs)}}, tenant="acme")[0] == 404
    assert call("POST", {"filter": {"endpoint": endpoint(theirs), "tenant": "acme"}})[0] == 404
    assert call("POST", {"filter": {"tenant": "other"}}, tenant="acme")[0] == 422
    assert replayed({"filter": {"all": True}}, tenant="acme")["matched"] == 0
    assert pending(connection) == [our_dead]
    replay_id = replayed({"filter": {"endpoint": endpoint(theirs)}})["id"]
    assert call("GET", id=replay_id, tenant="other")[0] == 200
    assert call("GET", id=replay_id, tenant="acme")[0] == 404
    assert call("DELETE", id=replay_id, tenant="acme")[0] == 404
    assert [item["id"] for item in call("GET", tenant="other")[1]["items"]] == [replay_id]


def test_cancelling_leaves_what_was_not_put_back_and_cancels_what_is_pending(
    connection: Connection, database_url: str
) -> None:
    endpoint_id = make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 30)
    answer = replayed({"filter": {"endpoint": endpoint(endpoint_id)}, "rate": 2})
    connection.execute("SELECT FROM forbear.claim(1, 1000000, 10)")  # the first one is being sent

    status, cancelled = call("DELETE", id=answer["id"])
    assert (status, cancelled["state"], cancelled["matched"], cancelled["cancelled"]) == (200, "cancelled", 20, 19)
    assert cancelled["still_pending"] == {"count": 1, "more": False}
    states = dict(connection.execute("SELECT id, state FROM forbear.deliveries").fetchall())
    assert [states[delivery] for delivery in dead] == ["leased"] + ["cancelled"] * 19 + ["dead"] * 10
    move_clock(connection, minutes=1)
    assert step(connection) is None

    # What came back to wait for its next attempt is cancelled by asking again; and all of it can be replayed.
    connection.execute(
        "UPDATE forbear.queue SET lease_token = NULL, lease_until = NULL, claimed_at = NULL, due_at = forbear.now()"
    )
    assert call("DELETE", id=answer["id"])[1]["cancelled"] == 20
    assert replayed({"filter": {"endpoint": endpoint(endpoint_id), "status": "cancelled"}})["matched"] == 20
    assert pending(connection) == dead[:20]
    assert attempt_all(database_url, "delivered") == dead[:20]


def test_cancelling_before_its_time_or_after_its_end_changes_what_there_is_to_change(
    connection: Connection, database_url: str
) -> None:
    endpoint_id = make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 2)
    waiting = replayed({"filter": {"endpoint": endpoint(endpoint_id)}, "at": "2035-01-01T00:00:00Z"})
    assert call("DELETE", id=waiting["id"])[1]["state"] == "cancelled"
    done = replayed({"deliveries": shown(dead)})
    assert attempt_all(database_url, "delivered") == dead
    status, cancelled = call("DELETE", id=done["id"])
    assert (status, cancelled["state"], cancelled["cancelled"]) == (200, "cancelled", 0)
    assert connection.execute("SELECT DISTINCT state FROM forbear.history").fetchall() == [("delivered",)]
    assert call("DELETE", id=encode(Prefix.REPLAY, uuid4()))[0] == 404


def test_a_large_cancel_goes_on_in_the_claimer(
    connection: Connection, handlers: pytest.MonkeyPatch, woken: list[object]
) -> None:
    endpoints = [make_endpoint(connection) for _ in range(3)]
    for endpoint_id in endpoints:
        make_finished(connection, endpoint_id, 700, attempts=1)
    answer = replayed({"filter": {"tenant": "acme"}})
    connection.execute("DELETE FROM forbear.claimers")
    handlers.setattr(replays, "FIRST_CANCEL_STEPS", 1)
    status, cancelled = call("DELETE", id=answer["id"])
    assert (status, cancelled["state"], cancelled["cancelled"], len(woken)) == (202, "cancelling", 1000, 2)
    while step(connection) is not None:
        pass
    ended = progress(answer["id"])
    assert (ended["state"], ended["cancelled"], pending(connection)) == ("cancelled", 2100, [])


def test_two_replays_of_the_same_deliveries_at_once_put_each_back_once(
    connection: Connection, connect: Connect
) -> None:
    endpoints = [make_endpoint(connection) for _ in range(3)]
    dead = sorted(
        delivery for endpoint_id in endpoints for delivery in make_finished(connection, endpoint_id, 1000, attempts=1)
    )
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    # By endpoint and by id they go through the same rows in different orders.
    by_filter: dict[str, Any] = {"filter": {"tenant": "acme"}}
    orders = [by_filter, by_filter, {"deliveries": shown(dead[:1000])}]
    replay_ids = [decode(Prefix.REPLAY, replayed({**order, "at": later})["id"]) for order in orders]

    def run_steps(replay_id: UUID) -> None:
        own = connect()
        while one(own, "SELECT forbear.step_replay(%s, 50)", replay_id) is not None:
            pass

    with ThreadPoolExecutor(len(replay_ids)) as threads:
        list(threads.map(run_steps, replay_ids))
    assert sorted(pending(connection)) == dead
    assert one(connection, "SELECT count(*) FROM forbear.history") == 0
    assert one(connection, "SELECT array_agg(DISTINCT generation) FROM forbear.queue") == [2]
    assert one(connection, "SELECT sum(matched) FROM forbear.replays") == 3000
    assert one(connection, "SELECT count(*) FROM forbear.queue_attempts") == 3000


def test_steps_of_one_replay_by_several_claimers_do_not_overlap(connection: Connection, connect: Connect) -> None:
    endpoint_id = make_endpoint(connection)
    dead = make_finished(connection, endpoint_id, 6500, attempts=1)
    replayed({"filter": {"endpoint": endpoint(endpoint_id)}})

    def claimer(number: int) -> None:
        own = connect()
        # One is the call that was posted, which runs steps of its own.
        run_step = (
            "SELECT forbear.replay_step(100)" if number else "SELECT forbear.step_replay(id, 100) FROM forbear.replays"
        )
        while one(own, run_step) is not None:
            pass

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(claimer, range(3)))
    assert pending(connection) == dead
    assert one(connection, "SELECT matched FROM forbear.replays") == 6500


def test_a_replay_that_meets_the_deletion_of_its_endpoint_ends_cancelled(
    connection: Connection, connect: Connect
) -> None:
    """The claimer has emptied the deleted lane before the replay commits: its wake row brings the claimer back."""
    endpoint_id = make_endpoint(connection)
    (dead,) = make_finished(connection, endpoint_id)
    answer = replayed({"deliveries": shown([dead]), "at": "2035-01-01T00:00:00Z"})
    other = connect()
    with other.transaction():
        one(other, "SELECT forbear.step_replay(%s, 10)", decode(Prefix.REPLAY, answer["id"]))
        connection.execute(
            "UPDATE forbear.lanes SET deleted_at = forbear.now(), ready_at = forbear.now() WHERE endpoint_id = %s",
            (endpoint_id,),
        )
        connection.execute("SELECT FROM forbear.claim(10, 1000000, 10)")
    assert pending(connection) == [dead]
    connection.execute("SELECT FROM forbear.claim(10, 1000000, 10)")
    assert connection.execute("SELECT id, state, generation FROM forbear.deliveries").fetchall() == [
        (dead, "cancelled", 2)
    ]


def test_retention_does_not_drop_the_event_of_a_delivery_that_is_just_being_put_back(
    connection: Connection, connect: Connect
) -> None:
    endpoint_id = make_endpoint(connection)
    old = {"made_ago_s": 40 * 86_400.0, "ended_ago_s": 39 * 86_400.0}
    (kept,) = make_finished(connection, endpoint_id, **old)  # type: ignore[arg-type]  # keyword arguments
    (left,) = make_finished(connection, endpoint_id, made_ago_s=50 * 86_400.0, ended_ago_s=49 * 86_400.0)
    answer = replayed({"deliveries": shown([kept]), "at": "2035-01-01T00:00:00Z"})
    other, retention = connect(), connect()
    with ThreadPoolExecutor(1) as threads:
        with other.transaction():
            one(other, "SELECT forbear.step_replay(%s, 10)", decode(Prefix.REPLAY, answer["id"]))
            dropping = threads.submit(drop_old_partitions, retention, 30)
            while not one(
                connection,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            ):
                assert not dropping.done()
        assert len(dropping.result()) >= 3
    assert connection.execute("SELECT id, state FROM forbear.deliveries").fetchall() == [(kept, "pending")]
    rows = connection.execute("SELECT delivery_id, payload FROM forbear.claim(10, 1000000, 10)").fetchall()
    assert rows == [(kept, b"payload")]
    assert left not in pending(connection)


def test_what_the_function_url_does_not_offer_is_refused(connection: Connection) -> None:
    assert call("PUT", {})[0] == 405
    assert call("DELETE")[0] == 422
    assert call("GET", id="rpl_x")[0] == 422
    assert call("GET", id=encode(Prefix.REPLAY, uuid4()))[0] == 404
    assert call("GET", limit=1000)[0] == 422
    assert call("GET", colour="red")[0] == 422
    result = replay.handler(http_event("POST", "/", body=b"{") | {"routeKey": "$default"}, None)
    assert result["statusCode"] == 400
