"""Secrets by the API: shown, rotated with an overlap, and gone when it is over."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg

from forbear.sealed import open_secret
from tests.functions.builders import keyring_of, move_clock, one, post
from tests.functions.manage.calling import ENDPOINT, Claimer, call, create, ok

type Connection = psycopg.Connection[Any]

ASYMMETRIC = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


def rotate(endpoint: Any, secret: str | None = None) -> Any:
    return ok(call("POST", f"{ENDPOINT}/rotate-secret", endpoint["id"], body=secret and {"secret": secret}))


def reveal(endpoint: Any) -> Any:
    answer = call("GET", f"{ENDPOINT}/secret", endpoint["id"])
    assert answer.headers["cache-control"] == "no-store"
    return ok(answer)


def signing(connection: Connection) -> list[str]:
    """The secrets that a claim hands out, in their order."""
    connection.execute("DELETE FROM forbear.queue")
    post(connection, b"1")
    claimed = "SELECT endpoint_id, endpoint::jsonb -> 'secrets' FROM forbear.claim(10, 1000000, 10)"
    ((endpoint_id, sealed),) = connection.execute(claimed).fetchall()
    return [open_secret(keyring_of(connection), endpoint_id, each) for each in sealed]


def test_a_rotated_secret_signs_for_24_hours_more(connection: Connection) -> None:
    made = create()
    rotated = rotate(made)
    assert rotated["secret"] != made["secret"]
    (earlier,) = rotated["earlier"]
    assert earlier["secret"] == made["secret"]
    overlap = datetime.fromisoformat(earlier["expires_at"]) - datetime.fromisoformat(rotated["created_at"])
    assert abs(overlap - timedelta(hours=24)) < timedelta(seconds=5)
    assert reveal(made) == rotated
    assert signing(connection) == [rotated["secret"], made["secret"]]

    move_clock(connection, hours=23, minutes=59)
    assert signing(connection) == [rotated["secret"], made["secret"]]
    move_clock(connection, minutes=2)
    assert signing(connection) == [rotated["secret"]]
    assert reveal(made)["earlier"] == []


def test_an_own_secret_is_rotated_to_and_an_ed25519_key_shows_what_receivers_need() -> None:
    made = create()
    rotated = rotate(made, ASYMMETRIC)
    assert (rotated["secret"], rotated["public_key"]) == (ASYMMETRIC, PUBLIC)
    assert rotated["earlier"][0]["public_key"] is None
    again = rotate(made)
    assert [one["public_key"] for one in (again, *again["earlier"])] == [None, PUBLIC, None]


def test_a_second_rotation_keeps_every_secret_that_has_not_expired(connection: Connection) -> None:
    made = create()
    second = rotate(made)["secret"]
    move_clock(connection, hours=20)
    third = rotate(made)["secret"]
    assert signing(connection) == [third, made["secret"], second]  # as they expire, the current one first
    assert [one["secret"] for one in reveal(made)["earlier"]] == [second, made["secret"]]
    move_clock(connection, hours=5)
    assert signing(connection) == [third, second]
    move_clock(connection, hours=20)
    assert signing(connection) == [third]


def test_five_live_secrets_are_enough(connection: Connection) -> None:
    made = create()
    for _ in range(4):
        rotate(made)
    answer = call("POST", f"{ENDPOINT}/rotate-secret", made["id"])
    assert answer.status == 409
    expires_at = min(one["expires_at"] for one in reveal(made)["earlier"])
    assert f"rotate again after {expires_at}" in answer.detail
    move_clock(connection, hours=24, seconds=1)
    rotate(made)
    assert one(connection, "SELECT count(*) FROM forbear.secrets") == 2  # what had expired is gone


def test_rotating_to_a_secret_that_signs_already_is_a_conflict() -> None:
    made = create()
    rotated = rotate(made)
    for secret in (rotated["secret"], made["secret"]):
        answer = call("POST", f"{ENDPOINT}/rotate-secret", made["id"], body={"secret": secret})
        assert answer.status == 409
        assert secret not in answer.detail
    assert reveal(made) == rotated


def test_a_wrong_secret_is_refused() -> None:
    made = create()
    for secret in ("", "whsec_", "whsec_AAAA", "nonsense-nonsense"):
        answer = call("POST", f"{ENDPOINT}/rotate-secret", made["id"], body={"secret": secret})
        assert answer.status == 422
        assert answer.body["errors"][0]["field"] == "secret"
    assert reveal(made)["earlier"] == []


def test_rotations_while_the_clock_stands_still_keep_their_order(connection: Connection) -> None:
    made = create()
    connection.execute("UPDATE forbear.clock SET frozen_at = clock_timestamp()")
    secrets = [made["secret"], rotate(made)["secret"], rotate(made)["secret"]]
    shown = reveal(made)
    assert [shown["secret"], *(one["secret"] for one in shown["earlier"])] == secrets[::-1]


def test_a_claim_signs_with_the_secrets_of_its_own_endpoint_only(connection: Connection, claimer: Claimer) -> None:
    first, second = create(tenant="a"), create(tenant="b")
    rotate(second)
    post(connection, b"1", tenant="a")
    post(connection, b"1", tenant="b")
    keys = {len(lease.lane.endpoint.keys) for lease in claimer.claim() if hasattr(lease.lane.endpoint, "keys")}
    assert keys == {1, 2}
    assert reveal(first)["earlier"] == []
