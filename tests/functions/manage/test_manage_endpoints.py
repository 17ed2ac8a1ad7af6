"""Endpoints by the API: created, listed, read, changed, deleted, and nobody else's business."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from forbear.policy.model import Policy
from forbear.policy.schedule import Exponential
from forbear.sealed import open_secret
from tests.functions.builders import keyring_of, make_endpoint, move_clock, one, post
from tests.functions.conftest import forget
from tests.functions.manage.calling import (
    DELIVERY,
    ENDPOINT,
    URL,
    Claimer,
    call,
    create,
    ep,
    ep_id,
    ok,
    open_breaker,
    rows,
)

type Connection = psycopg.Connection[Any]

SYMMETRIC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ASYMMETRIC = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="

WRONG_FIELDS: list[tuple[str, Any, str]] = [
    ("url", "http://example.com/", "http is not allowed here"),
    ("url", "https://user:pass@example.com/", "user name and password do not belong"),
    ("url", "https://example.com/#frag", "fragment"),
    ("url", "https://example.com/a b", "space"),
    ("url", "https://example.com/é", "percent-encode"),
    ("url", "https://example.com\\@127.0.0.1/", "backslash"),
    ("url", "ftp://example.com/", "use https"),
    ("url", "example.com", "not absolute"),
    ("url", "", "not absolute"),
    ("url", "https://[::1]:9876/", "cannot go there"),
    ("url", "https://127.0.0.1/", "cannot go there"),
    ("url", "https://localhost/", "cannot go there"),
    ("url", "https://169.254.169.254/latest/meta-data/", "cannot go there"),
    ("url", "https://metadata.google.internal/", "cannot go there"),
    ("url", "https://[::ffff:127.0.0.1]/", "cannot go there"),
    ("url", "https://example.com/" + "a" * 2048, "at most 2048"),
    ("url", 5, "valid string"),
    ("headers", {"x": "a\r\nX-Injected: 1"}, "printable ASCII"),
    ("headers", {"x": "a\nb"}, "printable ASCII"),
    ("headers", {"x": "a\0b"}, "printable ASCII"),
    ("headers", {"x": "é"}, "printable ASCII"),
    ("headers", {"bad name": "x"}, "RFC 9110 token"),
    ("headers", {"Host": "x"}, "set by HTTP"),
    ("headers", {"Content-Length": "1"}, "set by HTTP"),
    ("headers", {"webhook-signature": "v1,x"}, "set by Forbear"),
    ("headers", {"x": "a" * 2001}, "at most 2000 characters"),
    ("headers", {"a": "1", "A": "2"}, "there twice"),
    ("event_types", [], "at least 1 item"),
    ("event_types", ["a..b"], "a subscription is"),
    ("event_types", ["*.paid"], "a subscription is"),
    ("event_types", ["a"] * 101, "at most 100 items"),
    ("secret", "", "the secret is empty"),
    ("secret", "whsec_", "the secret is empty"),
    ("secret", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with whsec_"),
    ("secret", f"v1,{SYMMETRIC}", "belongs to signatures"),
    ("secret", PUBLIC, "public key"),
    ("secret", "whsec_AAAA", "24 to 64 bytes"),
    ("tenant", "", "a tenant's name"),
    ("tenant", "a b", "a tenant's name"),
    ("tenant", None, "valid string"),
    ("description", "a\0b", "U+0000"),
    ("description", "a" * 1001, "at most 1000 characters"),
    ("policy", {"timeout_s": 31}, "less than or equal to 30"),
    ("policy", {"limits": {"burst": 2}}, "burst says nothing without rate_per_s"),
    ("policy", {"limits": {"concurrency": "5"}}, "valid integer"),
    ("policy", {"speed": 1}, "there is no such field"),
    ("policy", {"limits": {"concurrency": None}}, "adaptive needs limits.concurrency to stay under"),
    ("policy", {"schedule": {"kind": "ladder"}}, "it is missing"),
    ("policy", None, "should be an object"),
    ("preset", "nope", "there is no preset 'nope': name one of default, dropless, "),
    ("preset", 5, "valid string"),
    ("paused", "yes", "valid boolean"),
    ("colour", "red", "there is no such field"),
]

WRONG_QUERIES: list[tuple[dict[str, str], int, str]] = [
    ({"limit": "0"}, 422, "greater than or equal to 1"),
    ({"limit": "101"}, 422, "less than or equal to 100"),
    ({"limit": "many"}, 422, "valid integer"),
    ({"tenant": "a b"}, 422, "a tenant's name"),
    ({"tennant": "a"}, 422, "there is no such field"),
    ({"cursor": "x"}, 400, "not one of this list"),
    ({"cursor": "é\0"}, 400, "not one of this list"),
    ({"cursor": "ZAAAAAAAAAAAAAAAAAAAAAA"}, 400, "not one of this list"),
]


def test_a_new_endpoint_has_defaults_and_a_secret_of_its_own(connection: Connection) -> None:
    answer = call("POST", "/v1/endpoints", body={"tenant": "acme", "url": URL})
    made = ok(answer, 201)
    assert answer.headers["location"] == f"/v1/endpoints/{made['id']}"
    assert made["event_types"] == ["*"]
    assert made["headers"] == {}
    assert made["preset"] == "default"
    assert Policy.model_validate(made["policy"]) == Policy()
    assert made["secret"].startswith("whsec_")
    assert made["public_key"] is None
    assert made["circuit"] | {"since": None} == {
        "state": "closed", "since": None, "reason": None, "failures": 0, "next_probe_at": None, "allows": 100,
        "retries": 10, "held": [],
    }  # fmt: skip
    sealed = one(connection, "SELECT secret FROM forbear.secrets")
    assert open_secret(keyring_of(connection), ep_id(made["id"]), sealed) == made["secret"]


def test_what_is_given_is_kept_and_the_lane_gets_its_limits(connection: Connection) -> None:
    made = create(
        url="https://Example.com:8443/a?sig=a%2Fb%3D",
        event_types=["invoice.*", "order.paid", "invoice.*"],
        description="billing — Zürich",
        headers={"X-Key": "s3cret", "authorization": "Bearer x"},
        policy={"timeout_s": 20, "limits": {"concurrency": 7, "rate_per_s": 2.5}},
    )
    assert made["url"] == "https://example.com:8443/a?sig=a%2Fb%3D"
    assert made["event_types"] == ["invoice.*", "order.paid"]
    assert made["headers"] == {"X-Key": "s3cret", "authorization": "Bearer x"}
    assert made["policy"]["limits"] == {"concurrency": 7, "rate_per_s": 2.5, "burst": None}
    assert made["preset"] is None
    assert Policy.model_validate(made["policy"]).schedule == Policy().schedule
    assert rows(connection, "SELECT timeout_s, concurrency, rate_per_s, burst FROM forbear.lanes") == [
        {"timeout_s": 20.0, "concurrency": 7, "rate_per_s": 2.5, "burst": 3}
    ]
    assert {row["pattern"] for row in rows(connection, "SELECT pattern FROM forbear.subscriptions")} == {
        "invoice.*", "order.paid",
    }  # fmt: skip


@pytest.mark.parametrize(("secret", "public"), [(SYMMETRIC, None), (ASYMMETRIC, PUBLIC)])
def test_an_own_secret_is_taken(secret: str, public: str | None) -> None:
    made = create(secret=secret)
    assert (made["secret"], made["public_key"]) == (secret, public)


def test_only_creation_and_the_secret_route_show_a_secret() -> None:
    made = create(secret=SYMMETRIC)
    for answer in (
        call("GET", ENDPOINT, made["id"]),
        call("GET", "/v1/endpoints"),
        call("PATCH", ENDPOINT, made["id"], body={"description": "x"}),
        call("POST", f"{ENDPOINT}/pause", made["id"]),
    ):
        assert SYMMETRIC not in str(ok(answer))


def test_a_wrong_field_is_named_and_nothing_is_stored(connection: Connection, subtests: pytest.Subtests) -> None:
    for field, value, message in WRONG_FIELDS:
        with subtests.test(field=field, value=value):
            answer = call("POST", "/v1/endpoints", body={"tenant": "acme", "url": URL, field: value})
            assert answer.status == 422
            assert message in answer.detail
            assert answer.body["errors"][0]["field"].split(".")[0] == field
    assert one(connection, "SELECT count(*) FROM forbear.endpoints") == 0


def test_a_refused_secret_is_not_repeated() -> None:
    answer = call("POST", "/v1/endpoints", body={"tenant": "acme", "url": URL, "secret": "hunter2-hunter2"})
    assert answer.status == 422
    assert "hunter2" not in str(answer.body)


def test_a_body_that_is_no_json_is_400() -> None:
    for body in (b"{", b"nonsense", b'{"tenant": "\\ud800"}', b'{"tenant": NaN'):
        answer = call("POST", "/v1/endpoints", body=body)
        assert answer.status == 400
        assert "not JSON" in answer.detail


def test_a_body_without_the_needed_fields_is_422() -> None:
    answer = call("POST", "/v1/endpoints")
    assert answer.status == 422
    assert {error["field"] for error in answer.body["errors"]} == {"tenant", "url"}


def test_the_stack_may_allow_http_private_networks_and_only_some_ports(handlers: pytest.MonkeyPatch) -> None:
    handlers.setenv("FORBEAR_ALLOW_HTTP", "true")
    handlers.setenv("FORBEAR_ALLOW_NETWORKS", "127.0.0.0/8")
    handlers.setenv("FORBEAR_PORTS", "80,8080")
    forget()
    assert create(url="http://127.0.0.1:8080/")["url"] == "http://127.0.0.1:8080/"
    answer = call("POST", "/v1/endpoints", body={"tenant": "acme", "url": "http://127.0.0.1:8081/"})
    assert answer.status == 422
    assert "port 8081 is not allowed here" in answer.detail


def test_an_endpoint_may_start_paused() -> None:
    assert [hold["by"] for hold in create(paused=True)["circuit"]["held"]] == ["paused"]


def test_lists_page_through_a_tenant_newest_first() -> None:
    mine = [create()["id"] for _ in range(5)]
    create(tenant="other")
    seen: list[str] = []
    query = {"limit": "2"}
    while True:
        page = ok(call("GET", "/v1/endpoints", tenant="acme", query=query))
        assert len(page["items"]) <= 2
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        query = {"limit": "2", "cursor": page["next"]}
    assert seen == mine[::-1]
    assert len(ok(call("GET", "/v1/endpoints"))["items"]) == 6


def test_wrong_query_parameters_are_named(subtests: pytest.Subtests) -> None:
    for query, status, message in WRONG_QUERIES:
        with subtests.test(query=query):
            answer = call("GET", "/v1/endpoints", query=query)
            assert answer.status == status
            assert message in answer.detail


def test_a_patch_changes_what_it_names_and_nothing_else(connection: Connection) -> None:
    made = create(description="old", headers={"a": "1"}, event_types=["a.b"], policy={"limits": {"concurrency": 7}})
    changed = ok(call("PATCH", ENDPOINT, made["id"], body={"url": "https://example.org/new"}))
    assert changed["url"] == "https://example.org/new"
    for field in ("description", "headers", "event_types", "policy", "created_at", "tenant"):
        assert changed[field] == made[field]
    assert changed["updated_at"] > made["updated_at"]
    assert one(connection, "SELECT concurrency FROM forbear.lanes") == 7


def test_a_patch_with_null_sets_the_default(connection: Connection) -> None:
    made = create(description="old", headers={"a": "1"}, event_types=["a.b"], policy={"limits": {"concurrency": 7}})
    body = {"description": None, "headers": None, "event_types": None, "policy": None}
    changed = ok(call("PATCH", ENDPOINT, made["id"], body=body))
    assert (changed["description"], changed["headers"], changed["event_types"]) == ("", {}, ["*"])
    assert Policy.model_validate(changed["policy"]) == Policy()
    assert one(connection, "SELECT concurrency FROM forbear.lanes") == 100
    assert one(connection, "SELECT array_agg(pattern) FROM forbear.subscriptions") == ["*"]


def test_a_patch_replaces_the_parts_of_a_policy_that_it_names(connection: Connection) -> None:
    made = create(policy={"timeout_s": 20, "limits": {"concurrency": 7, "rate_per_s": 1}})
    schedule = {"kind": "exponential", "base_s": 5, "multiplier": 2, "window_s": 60}
    body = {"policy": {"limits": {"rate_per_s": 9}, "schedule": schedule}}
    policy = ok(call("PATCH", ENDPOINT, made["id"], body=body))["policy"]
    assert policy["timeout_s"] == 20
    assert policy["limits"] == {"concurrency": 100, "rate_per_s": 9, "burst": None}
    assert Policy.model_validate(policy).schedule == Exponential(base_s=5, multiplier=2, window_s=60)
    assert rows(connection, "SELECT timeout_s, concurrency, rate_per_s, burst FROM forbear.lanes") == [
        {"timeout_s": 20.0, "concurrency": 100, "rate_per_s": 9.0, "burst": 9}
    ]


def test_a_patch_of_event_types_changes_who_gets_what(connection: Connection) -> None:
    made = create(event_types=["a", "b.*"])
    ok(call("PATCH", ENDPOINT, made["id"], body={"event_types": ["b.*", "c"]}))
    for event_type, deliveries in (("a", 0), ("b.x", 1), ("c", 1)):
        (event,) = post(connection, b"{}", event_type=event_type)
        assert one(connection, "SELECT count(*) FROM forbear.queue WHERE event_id = %s", event) == deliveries


def test_a_wrong_patch_is_refused_and_changes_nothing(subtests: pytest.Subtests) -> None:
    made = create()
    wrong: list[tuple[Any, str]] = [
        ({"url": None}, "url"),
        ({"url": "http://x.example/"}, "url"),
        ({"tenant": "other"}, "tenant"),
        ({"headers": {"Host": "x"}}, "headers"),
        ({"policy": {"timeout_s": 0}}, "policy.timeout_s"),
        ({"secret": SYMMETRIC}, "secret"),
        ({"event_types": []}, "event_types"),
        ({"preset": "nope"}, "preset"),
        ({"preset": "repost", "policy": {"limits": {"concurrency": None}}}, "policy"),
    ]
    for body, field in wrong:
        with subtests.test(body=body):
            answer = call("PATCH", ENDPOINT, made["id"], body=body)
            assert answer.status == 422
            assert answer.body["errors"][0]["field"] == field
    assert ok(call("GET", ENDPOINT, made["id"]))["updated_at"] == made["updated_at"]


def test_an_empty_patch_is_no_error() -> None:
    made = create(description="x")
    assert ok(call("PATCH", ENDPOINT, made["id"], body={}))["description"] == "x"


def test_a_higher_rate_takes_effect_at_once(connection: Connection, claimer: Claimer) -> None:
    made = create(policy={"limits": {"rate_per_s": 0.001, "burst": 1}})
    post(connection, b"1")
    post(connection, b"2")
    assert len(claimer.claim()) == 1
    assert claimer.claim() == []
    ok(call("PATCH", ENDPOINT, made["id"], body={"policy": {"limits": {}}}))
    assert len(claimer.claim()) == 1


def test_deleting_cancels_what_is_unfinished_and_keeps_it_readable(connection: Connection, claimer: Claimer) -> None:
    made = create()
    post(connection, b"1")
    claimer.finish()
    post(connection, b"2")
    (leased,) = claimer.claim()
    post(connection, b"3")
    assert call("DELETE", ENDPOINT, made["id"]).status == 204

    for answer in (
        call("GET", ENDPOINT, made["id"]),
        call("PATCH", ENDPOINT, made["id"], body={}),
        call("DELETE", ENDPOINT, made["id"]),
        call("GET", f"{ENDPOINT}/secret", made["id"]),
        *(call("POST", f"{ENDPOINT}/{verb}", made["id"]) for verb in ("pause", "resume", "enable", "reset-breaker")),
        call("POST", f"{ENDPOINT}/test", made["id"]),
        call("POST", f"{ENDPOINT}/rotate-secret", made["id"]),
        call("POST", f"{ENDPOINT}/backfill", made["id"], body={"since": "2026-01-01T00:00:00Z"}),
    ):
        assert answer.status == 404, answer.body
        assert made["id"] in answer.detail
    assert ok(call("GET", "/v1/endpoints"))["items"] == []
    page = ok(call("GET", "/v1/deliveries", query={"endpoint": made["id"]}))
    assert [item["status"] for item in page["items"]] == ["cancelled", "cancelled", "delivered"]
    assert one(connection, "SELECT count(*) FROM forbear.secrets") == 0

    assert claimer.settle(leased, "delivered").late
    late = ok(call("GET", DELIVERY, page["items"][1]["id"]))
    assert late["status"] == "cancelled"
    assert [(attempt["late"], attempt["status"]) for attempt in late["attempts"]] == [(True, 200)]


def test_nothing_new_comes_to_a_deleted_endpoint(connection: Connection) -> None:
    made = create()
    call("DELETE", ENDPOINT, made["id"])
    post(connection, b"1")
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 0


@pytest.mark.parametrize("held_by", ["pause", "breaker", "retry-after", "nothing"])
def test_the_claimer_cancels_what_a_deletion_left_whatever_held_it(
    connection: Connection, claimer: Claimer, held_by: str
) -> None:
    made = create()
    endpoint_id = ep_id(made["id"])
    for _ in range(3):
        post(connection, *[b"x"] * 500)
    if held_by == "pause":
        ok(call("POST", f"{ENDPOINT}/pause", made["id"]))
    elif held_by == "breaker":
        open_breaker(connection, endpoint_id, 3600)
    elif held_by == "retry-after":
        connection.execute(
            "UPDATE forbear.lanes SET wait_until = forbear.now() + interval '1 hour',"
            " ready_at = forbear.now() + interval '1 hour'"
        )
    assert call("DELETE", ENDPOINT, made["id"]).status == 204
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 500
    assert claimer.claim() == []
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 0
    assert one(connection, "SELECT count(*) FROM forbear.history WHERE state = 'cancelled'") == 1500


def test_a_deletion_does_not_wait_for_what_is_being_settled(
    connection: Connection, connect: Callable[[], Connection], claimer: Claimer
) -> None:
    made = create()
    post(connection, b"1", b"2")
    lease, _ = claimer.claim()
    settling = connect()
    with settling.transaction():
        settling.execute("SELECT FROM forbear.queue WHERE id = %s FOR UPDATE", (lease.delivery_id,))
        assert call("DELETE", ENDPOINT, made["id"]).status == 204
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 1
    claimer.settle(lease, "retry", delay_s=60)
    move_clock(connection, seconds=61)
    assert claimer.claim() == []
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 0


def test_another_tenants_endpoint_looks_as_if_it_did_not_exist(connection: Connection) -> None:
    theirs = ep(make_endpoint(connection, tenant="other"))
    unknown = ep(uuid4())
    operations: list[tuple[str, str, Any]] = [
        ("GET", ENDPOINT, None),
        ("PATCH", ENDPOINT, {"description": "mine"}),
        ("DELETE", ENDPOINT, None),
        ("GET", f"{ENDPOINT}/secret", None),
        ("POST", f"{ENDPOINT}/rotate-secret", None),
        ("POST", f"{ENDPOINT}/test", None),
        ("POST", f"{ENDPOINT}/backfill", {"since": "2026-01-01T00:00:00Z"}),
        *(("POST", f"{ENDPOINT}/{verb}", None) for verb in ("pause", "resume", "enable", "reset-breaker")),
    ]
    everything = "SELECT e::text, l::text, s::text FROM forbear.endpoints e, forbear.lanes l, forbear.secrets s"
    before = rows(connection, everything)
    for method, template, body in operations:
        foreign = call(method, template, theirs, body=body, tenant="acme")
        missing = call(method, template, unknown, body=body, tenant="acme")
        assert (foreign.status, missing.status) == (404, 404), template
        assert foreign.detail.replace(theirs, "X") == missing.detail.replace(unknown, "X")
    assert rows(connection, everything) == before
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 0
    for method, template, body in operations:
        if method != "DELETE":
            assert call(method, template, theirs, body=body, tenant="other").status in {200, 202}, template
    assert call("DELETE", ENDPOINT, theirs, tenant="other").status == 204


def test_without_its_database_it_says_so_and_when_to_come_back(handlers: pytest.MonkeyPatch) -> None:
    handlers.setenv("FORBEAR_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    handlers.setattr("forbear.api.DEFAULT_S", 0.5)
    forget()
    for answer in (call("GET", "/v1/endpoints"), call("POST", "/v1/endpoints", body={"tenant": "acme", "url": URL})):
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
    assert call("GET", "/v1/health").status == 200


def test_an_id_of_another_kind_is_404() -> None:
    for item in ("nonsense", "dlv_01h455vb4pex5vsknk084sn02q", "ep_8zzzzzzzzzzzzzzzzzzzzzzzzz", "é\0"):
        answer = call("GET", ENDPOINT, item)
        assert answer.status == 404
        assert "expected an id of the form ep_" in answer.detail
