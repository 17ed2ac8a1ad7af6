import socket
import string
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.guard import Guard
from tests.functions.addresses.ranges import ALLOWED, NOT_ADDRESSES, REFUSED
from tests.functions.addresses.spellings import ALLOWED_HOSTS, HOSTS

GUARD = Guard()
LOCAL = Guard(allow=(ip_network("127.0.0.0/8"), ip_network("::1/128")))

# Spellings that the resolver takes for public addresses; URLs must write them out.
SPELT_OTHERWISE = ["8.8.2056", "134744072", "0x08080808", "010.010.010.010"]


@pytest.mark.parametrize(("address", "reason"), REFUSED.items())
def test_what_is_not_globally_reachable_is_refused_with_a_reason(address: str, reason: str) -> None:
    assert reason in (GUARD.refusal(address) or "allowed")


@pytest.mark.parametrize("address", ALLOWED)
def test_globally_reachable_addresses_are_allowed_up_to_the_edges_of_the_ranges(address: str) -> None:
    assert GUARD.refusal(address) is None


@pytest.mark.parametrize("text", NOT_ADDRESSES)
def test_what_is_no_address_is_refused_as_such(text: str) -> None:
    assert "not an IP address" in (GUARD.refusal(text) or "allowed")


@pytest.mark.parametrize("host", HOSTS)
def test_every_spelling_of_what_must_not_be_reached_is_refused(host: str) -> None:
    assert GUARD.refusal_of_host(host)


@pytest.mark.parametrize("host", [*ALLOWED_HOSTS, *ALLOWED, *SPELT_OTHERWISE])
def test_hosts_are_allowed_until_they_resolve(host: str) -> None:
    assert GUARD.refusal_of_host(host) is None


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.9.9.9", "127.1", "2130706433", "[::1]", "localhost", "a.localhost", "ip6-localhost"],
)
def test_a_local_stack_may_allow_its_own_machine(host: str) -> None:
    assert LOCAL.refusal_of_host(host) is None
    assert GUARD.refusal_of_host(host)


@pytest.mark.parametrize(
    "host",
    ["128.0.0.256", "10.0.0.1", "169.254.169.254", "metadata.google.internal", "[::]", "[::2]", "0", "[fe80::1]"],
)
def test_allowing_one_network_allows_no_other(host: str) -> None:
    assert LOCAL.refusal_of_host(host)


@pytest.mark.parametrize("address", ["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"])
def test_an_allowed_ipv4_network_does_not_cover_ipv6_forms_of_itself(address: str) -> None:
    assert LOCAL.refusal(address)
    assert Guard(allow=(ip_network("::/0"),)).refusal(address) is None


def test_allowed_metadata_and_either_loopback_free_their_names() -> None:
    assert Guard(allow=(ip_network("169.254.169.254/32"),)).refusal_of_host("metadata.google.internal") is None
    assert Guard(allow=(ip_network("::1/128"),)).refusal_of_host("localhost") is None
    assert Guard(allow=(ip_network("127.0.0.1/32"),)).refusal_of_host("localhost") is None


def test_a_zone_does_not_matter_to_what_is_allowed() -> None:
    assert Guard(allow=(ip_network("fe80::/10"),)).refusal("fe80::1%eth0") is None


def edges(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    return [address + step for step in (-1, 0, 1) if 0 <= int(address) + step < 2**address.max_prefixlen]


addresses = st.one_of(
    st.ip_addresses(v=4),
    st.ip_addresses(v=6),
    # Near the borders of whatever the standard library knows, and IPv4 within IPv6.
    st.sampled_from([address for address in REFUSED if ":" not in address])
    .map(IPv4Address)
    .flatmap(lambda a: st.sampled_from(edges(a))),
    st.tuples(
        st.sampled_from(["::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::", "2002::", "2001::", "fe80::"]),
        st.ip_addresses(v=4),
    ).map(lambda pair: IPv6Address(pair[0]) + int(pair[1])),
)


@settings(max_examples=500)
@given(addresses)
def test_whatever_the_standard_library_does_not_call_global_is_refused(address: IPv4Address | IPv6Address) -> None:
    special = not address.is_global or address.is_multicast or address.is_loopback or address.is_link_local
    assert GUARD.refusal(str(address)) or not special


numbers = st.one_of(
    st.integers(0, 2**33).map(str),
    st.integers(0, 300).map(str),
    st.integers(0, 2**33).map(hex),
    st.integers(0, 300).map(hex),
    st.integers(0, 2**33).map("0{:o}".format),
    st.integers(0, 300).map("00{:o}".format),
    st.text(string.hexdigits + "xX", min_size=1, max_size=4),
)


@settings(max_examples=500)
@given(st.lists(numbers, min_size=1, max_size=5).map(".".join))
def test_every_number_that_the_resolver_takes_is_judged_as_the_address_it_means(host: str) -> None:
    try:
        found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return
    for *_, sockaddr in found:
        assert GUARD.refusal_of_host(host) == GUARD.refusal(str(sockaddr[0]))


@given(st.text(max_size=20) | st.text("0127.:[]%xfFlocahst", max_size=20))
def test_any_host_is_judged_without_an_error(host: str) -> None:
    for guard in (GUARD, LOCAL):
        guard.refusal_of_host(host)
        try:
            ip_address(host)
        except ValueError:
            assert guard.refusal(host)


@given(st.ip_addresses())
def test_a_host_that_is_an_address_is_judged_as_that_address(address: IPv4Address | IPv6Address) -> None:
    assert GUARD.refusal_of_host(str(address)) == GUARD.refusal(str(ip_address(str(address))))
