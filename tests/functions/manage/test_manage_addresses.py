"""Where an endpoint may lie, asked when its URL is set: by the API, with the settings that a stack has by default."""

from __future__ import annotations

import socket
import string
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forbear.guard import Guard
from tests.functions.addresses.ranges import ALLOWED, REFUSED
from tests.functions.addresses.spellings import ALLOWED_HOSTS, CREDENTIALS, HOSTS, URLS
from tests.functions.conftest import forget
from tests.functions.manage.calling import ENDPOINT, Answer, call, create, ok, rows

type Connection = psycopg.Connection[Any]


def in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


REFUSED_URLS: Mapping[str, str] = (
    URLS
    | CREDENTIALS
    | {f"https://{in_brackets(host)}/": reason for host, (_, reason) in HOSTS.items()}
    | {f"https://{in_brackets(address)}:8443/x": reason for address, reason in REFUSED.items() if "%" not in address}
)
ALLOWED_URLS = {
    **{
        f"https://{host}/a%2Fb?c=%2f&&d": f"https://{in_brackets(kept)}/a%2Fb?c=%2f&&d"
        for host, (kept, _) in ALLOWED_HOSTS.items()
    },
    **{f"https://{in_brackets(address)}/": None for address in ALLOWED},
}


def setting(url: str, endpoint_id: str) -> dict[str, Answer]:
    """Set a URL in both ways that there are."""
    return {
        "POST": call("POST", "/v1/endpoints", body={"tenant": "acme", "url": url}),
        "PATCH": call("PATCH", ENDPOINT, endpoint_id, body={"url": url}),
    }


def test_there_are_enough_of_them_to_mean_something() -> None:
    assert len(REFUSED_URLS) >= 150
    assert len(ALLOWED_URLS) >= 20


def test_every_refused_spelling_is_told_its_reason_and_changes_nothing(connection: Connection) -> None:
    made = create()
    before = rows(connection, "SELECT * FROM forbear.endpoints")
    wrong = {}
    for url, reason in REFUSED_URLS.items():
        # A lone surrogate is no JSON text, whatever it would be as a URL.
        expected = (422, reason) if url.isascii() or url.encode(errors="ignore").decode() == url else (400, "not JSON")
        for way, answer in setting(url, made["id"]).items():
            if answer.status != expected[0] or expected[1] not in answer.detail:
                wrong[way, url] = answer
    assert wrong == {}
    assert rows(connection, "SELECT * FROM forbear.endpoints") == before


def test_neighbours_are_allowed_and_kept_as_they_will_be_sent_to() -> None:
    made = create()
    for url, kept in ALLOWED_URLS.items():
        for way, answer in setting(url, made["id"]).items():
            assert answer.status == {"POST": 201, "PATCH": 200}[way], (url, answer)
            assert kept is None or answer.body["url"] == kept


def test_http_and_ports_are_what_the_settings_say(handlers: pytest.MonkeyPatch) -> None:
    made = create()
    handlers.setenv("FORBEAR_PORTS", "443,8443")
    handlers.setenv("FORBEAR_ALLOW_HTTP", "true")
    forget()
    for url in ("https://example.com:444/", "http://example.com/"):
        for answer in setting(url, made["id"]).values():
            assert answer.status == 422
            assert "is not allowed here; allowed: 443, 8443" in answer.detail
    ok(call("PATCH", ENDPOINT, made["id"], body={"url": "http://example.com:8443/"}))


# Numbers as resolvers read them: in any base, with any digits, in one to five parts.
_DIGITS = ["".join(map(chr, range(first, first + 10))) for first in (0x30, 0xFF10, 0x0660, 0x1D7CE)]
_numbers = st.one_of(
    st.integers(0, 300).map(str),
    st.integers(0, 2**33).map(str),
    st.integers(0, 2**33).map(hex),
    st.integers(0, 2**33).map("0{:o}".format),
    st.sampled_from(["127", "10", "0x7f", "0177", "169", "254", "192", "168", "0", "1"]),
    st.text(string.hexdigits + "xX", min_size=1, max_size=4),
)
_dotted = st.lists(_numbers, min_size=1, max_size=5).flatmap(
    lambda parts: st.sampled_from([".", "。", "\uff0e"]).map(lambda dot: dot.join(parts))
)
_other_digits = st.tuples(_dotted, st.sampled_from(_DIGITS)).map(
    lambda pair: pair[0].translate({ord(digit): pair[1][place] for place, digit in enumerate("0123456789")})
)
_ipv6 = st.one_of(
    st.ip_addresses(v=6).map(str),
    st.tuples(
        st.sampled_from(["::", "::ffff:", "::ffff:0:", "64:ff9b::", "fe80::5efe:", "2606:4700::5efe:", "0:0:0:0:0:0:"]),
        st.ip_addresses(v=4),
    ).map(lambda pair: f"{pair[0]}{pair[1]}"),
    st.sampled_from(["::1", "::", "fe80::1%lo", "fe80::1%1", "fd00:ec2::254", "::1%0"]),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_dotted | _other_digits | _ipv6)
@example("127.1")
@example("\uff11\uff12\uff17.1")
def test_what_the_systems_resolver_takes_for_a_refused_address_is_refused_when_it_is_set(host: str) -> None:
    """The resolver is asked, not a table: AI_NUMERICHOST reads every spelling of an address and looks nothing up."""
    try:
        found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return
    if any(Guard().refusal(str(sockaddr[0])) for *_, sockaddr in found):
        assert (
            call("POST", "/v1/endpoints", body={"tenant": "acme", "url": f"https://{in_brackets(host)}/"}).status == 422
        )
