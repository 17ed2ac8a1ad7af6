import socket
import string
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import urls
from forbear.guard import Guard

GUARD = Guard()
LOCAL = Guard(allow=(ip_network("127.0.0.0/8"), ip_network("::1/128")))

# Address -> a word of the reason.
REFUSED_ADDRESSES = {
    # IPv4: first, last and something within each range.
    "0.0.0.0": "this network",  # noqa: S104 - refused, not bound to
    "0.0.0.1": "this network",
    "0.255.255.255": "this network",
    "10.0.0.0": "private",
    "10.1.2.3": "private",
    "10.255.255.255": "private",
    "100.64.0.0": "shared",
    "100.64.0.1": "shared",
    "100.100.100.200": "shared",  # metadata service of Alibaba
    "100.127.255.255": "shared",
    "127.0.0.0": "loopback",
    "127.0.0.1": "loopback",
    "127.1.2.3": "loopback",
    "127.255.255.255": "loopback",
    "168.63.129.16": "metadata",
    "169.254.0.0": "link-local",
    "169.254.169.254": "link-local",  # metadata service of AWS, Google, Azure and others
    "169.254.170.2": "link-local",  # credentials of AWS containers
    "169.254.169.253": "link-local",
    "169.254.255.255": "link-local",
    "172.16.0.0": "private",
    "172.31.255.255": "private",
    "192.0.0.0": "protocol assignments",
    "192.0.0.9": "protocol assignments",
    "192.0.0.192": "protocol assignments",  # metadata service of Oracle
    "192.0.0.255": "protocol assignments",
    "192.0.2.1": "documentation",
    "192.0.2.255": "documentation",
    "192.88.99.1": "6to4",
    "192.168.0.0": "private",
    "192.168.255.255": "private",
    "198.18.0.0": "benchmarking",
    "198.18.0.1": "benchmarking",
    "198.19.255.255": "benchmarking",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.0": "multicast",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.0": "reserved",
    "250.1.2.3": "reserved",
    "255.255.255.254": "reserved",
    "255.255.255.255": "broadcast",
    # IPv6.
    "::": "unspecified",
    "::1": "loopback",
    "0:0:0:0:0:0:0:1": "loopback",
    "0000:0000:0000:0000:0000:0000:0000:0001": "loopback",
    "::1%lo": "loopback",
    "::2": "IPv4-compatible",
    "::7f00:1": "IPv4-compatible",
    "::127.0.0.1": "IPv4-compatible",
    "::8.8.8.8": "IPv4-compatible",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:7f00:1": "IPv4-mapped",
    "::FFFF:A9FE:A9FE": "IPv4-mapped",
    "::ffff:8.8.8.8": "IPv4-mapped",
    "0000:0000:0000:0000:0000:ffff:7f00:0001": "IPv4-mapped",
    "::ffff:0:127.0.0.1": "IPv4-translated",
    "::ffff:0:a9fe:a9fe": "IPv4-translated",
    "::fffe:127.0.0.1": "reserved",
    "0:0:1::": "reserved",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b::127.0.0.1": "NAT64",
    "64:ff9b::169.254.169.254": "NAT64",
    "64:ff9b::10.0.0.1": "NAT64",
    "64:ff9b::0.0.0.0": "NAT64",
    "64:ff9b::255.255.255.255": "NAT64",
    "64:ff9b::168.63.129.16": "NAT64",
    "64:ff9b:1::": "NAT64",
    "64:ff9b:1::8.8.8.8": "NAT64",
    "64:ff9b:1:ffff:ffff:ffff:ffff:ffff": "NAT64",
    "100::": "discard",
    "100::ffff:ffff:ffff:ffff": "discard",
    "100:0:0:1::1": "dummy",
    "100:0:0:2::1": "reserved",
    "200::1": "reserved",
    "400::1": "reserved",
    "1000::1": "reserved",
    "1fff:ffff::1": "reserved",
    "2001::1": "Teredo",
    "2001:0:7f00:1::": "Teredo",
    "2001:0:53aa:64c:0:0:80ff:fffe": "Teredo",
    "2001:1::1": "protocol assignments",
    "2001:2::1": "benchmarking",
    "2001:4:112::1": "protocol assignments",
    "2001:10::1": "protocol assignments",
    "2001:20::1": "protocol assignments",
    "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff": "protocol assignments",
    "2001:db8::1": "documentation",
    "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff": "documentation",
    "2002::1": "6to4",
    "2002:7f00:1::1": "6to4",
    "2002:a9fe:a9fe::": "6to4",
    "2002:808:808::1": "6to4",
    "3fff::1": "documentation",
    "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff": "documentation",
    "4000::1": "reserved",
    "5f00::1": "segment routing",
    "8000::1": "reserved",
    "c000::1": "reserved",
    "f000::1": "reserved",
    "fbff::1": "reserved",
    "fc00::": "unique local",
    "fd00:ec2::254": "unique local",  # metadata service of AWS
    "fd20:ce::254": "unique local",  # metadata service of Google
    "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "unique local",
    "fe00::1": "reserved",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fe80::a9fe:a9fe": "link-local",
    "febf:ffff::1": "link-local",
    "fec0::1": "site-local",
    "feff::1": "site-local",
    "ff00::": "multicast",
    "ff02::1": "multicast",
    "ff0e::1": "multicast",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "multicast",
    # ISATAP, with both values of its bits for universal and group.
    "2606:4700::5efe:7f00:1": "ISATAP",
    "2606:4700::5efe:10.0.0.1": "ISATAP",
    "2606:4700::200:5efe:169.254.169.254": "ISATAP",
    "2606:4700::100:5efe:192.168.0.1": "ISATAP",
    "fe80::5efe:8.8.8.8": "link-local",
    # No addresses.
    "": "not an IP address",
    "localhost": "not an IP address",
    "127.1": "not an IP address",
    "127.0.0.1 ": "not an IP address",
    "[::1]": "not an IP address",
    ":": "not an IP address",
    "%": "not an IP address",
}

ALLOWED_ADDRESSES = [
    "1.0.0.0",
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "11.0.0.1",
    "100.63.255.254",
    "100.63.255.255",
    "100.128.0.0",
    "100.128.0.1",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "172.32.0.1",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.1.255",
    "192.0.3.0",
    "192.31.196.1",  # AS112, which the registry calls globally reachable
    "192.88.98.255",
    "192.88.100.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "198.51.99.255",
    "198.51.101.0",
    "203.0.112.255",
    "203.0.114.0",
    "223.255.255.254",
    "223.255.255.255",
    "64:ff9b::8.8.8.8",
    "64:ff9b::100.63.255.254",
    "64:ff9b:0:1::7f00:1",
    "64:ff9b:2::1",
    "64:ff9a::7f00:1",
    "64:ff9c::1",
    "2000::1",
    "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:200::1",
    "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db9::1",
    "2001:4860:4860::8888",
    "2003::1",
    "2600:1f18::1",
    "2606:4700:4700::1111",
    "2620:4f:8000::1",
    "2a00:1450:4001:80b::200e",
    "3ffe:ffff::1",
    "3fff:1000::1",
    "2606:4700::5efe:8.8.8.8",
    "2606:4700::5eff:7f00:1",
    "2606:4700::400:5efe:7f00:1",
    "2606:4700::7f00:1",
]

# Spellings of an address or a name in a URL's host that resolvers accept.
REFUSED_HOSTS = [
    "0",
    "00",
    "0x",
    "0x0",
    "0.0",
    "127.1",
    "127.0.1",
    "127.0.0.1",
    "127.0.0.1.",
    "127.00.00.01",
    "127.0.0.0x1",
    "127.0.0.01",
    "127.65535",
    "127.0xffffff",
    "0177.1",
    "0177.0.0.1",
    "0000177.0.0.1",
    "00000000000000000000000000177.1",
    "0x7f.1",
    "0X7F.1",
    "0x7f.0x0.0x0.0x1",
    "0x7f000001",
    "0x7F000001",
    "0x000000007f000001",
    "2130706433",
    "017700000001",
    "10.1",
    "0xa.1",
    "012.1",
    "167772161",
    "192.168.257",
    "192.168.0x101",
    "3232235777",
    "0300.0250.1.1",
    "169.254.43518",
    "169.16689662",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "025177524776",
    "0251.0376.0251.0376",
    "169.254.0251.254",
    "172.1048577",
    "224.1",
    "4294967295",
    "0xffffffff",
    "037777777777",
    "\uff11\uff12\uff17.0.0.1",
    "\uff11\uff12\uff17\uff0e\uff10\uff0e\uff10\uff0e\uff11",
    "127\u30020\u30020\u30021",
    "127\uff610\uff610\uff611",
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
    "\uff10\uff58\uff17\uff46.1",
    "\u2461\u2460\u2462\u24ea\u2466\u24ea\u2465\u2463\u2462\u2462",
    "[::]",
    "[::1]",
    "::1",
    "[0:0::1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::FFFF:169.254.169.254]",
    "[0:0:0:0:0:ffff:7f00:0001]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "[2001:0:7f00:1::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "fe80::1%1",
    "[fd00:ec2::254]",
    "[\uff1a\uff1a1]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "foo.localhost",
    "a.b.LocalHost.",
    "\u24dbocalhost",
    "\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54",
    "localhost.localdomain",
    "localhost4",
    "localhost6",
    "localhost4.localdomain4",
    "localhost6.localdomain6",
    "ip6-localhost",
    "ip6-loopback",
    "metadata",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
    # Neither addresses nor names.
    "",
    ".",
    "256.256.256.256",
    "127.0.0.256",
    "127.0.0.0.1",
    "08.0.0.1",
    "4294967296",
    "340282366920938463463374607431768211457",
    "9" * 5000,
    "0x" + "0" * 5000,
    "example.123",
    "1.2.3.0x7g.0x1",
    "127..1",
    "[::1",
    "[]",
    "[127.0.0.1]",
]

ALLOWED_HOSTS = [
    "example.com",
    "EXAMPLE.com.",
    "receiver",
    "my_host",
    "1.example",
    "127.0.0.1.example.com",
    "0x7f.example",
    "localhost.example.com",
    "mylocalhost",
    "localhosts",
    "metadata.example.com",
    "metadata.google.internal.example.com",
    "metadatas",
    "xn--bcher-kva.example",
    "8.8.8.8",
    "8.8.2056",
    "134744072",
    "0x08080808",
    "010.010.010.010",
    "100.63.255.254",
    "223.255.255.255",
    "[2606:4700:4700::1111]",
    "2606:4700:4700::1111",
    "[64:ff9c::1]",
    "[64:ff9b::808:808]",
]


@pytest.mark.parametrize(("address", "reason"), REFUSED_ADDRESSES.items())
def test_what_is_not_globally_reachable_is_refused_with_a_reason(address: str, reason: str) -> None:
    assert reason in (GUARD.refusal(address) or "allowed")


@pytest.mark.parametrize("address", ALLOWED_ADDRESSES)
def test_globally_reachable_addresses_are_allowed_up_to_the_edges_of_the_ranges(address: str) -> None:
    assert GUARD.refusal(address) is None


@pytest.mark.parametrize("host", REFUSED_HOSTS)
def test_every_spelling_of_what_must_not_be_reached_is_refused(host: str) -> None:
    assert GUARD.refusal_of_host(host)


@pytest.mark.parametrize("host", ALLOWED_HOSTS)
def test_hosts_are_allowed_until_they_resolve(host: str) -> None:
    assert GUARD.refusal_of_host(host) is None


def test_the_lists_are_long_enough_to_mean_something() -> None:
    assert len(REFUSED_ADDRESSES.keys() | REFUSED_HOSTS) >= 200
    assert len({*ALLOWED_ADDRESSES, *ALLOWED_HOSTS}) >= 50


@pytest.mark.parametrize("host", [host for host in REFUSED_HOSTS if host])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_refused_host_passes_through_a_url(scheme: str, host: str) -> None:
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    try:
        url = urls.parse(f"{scheme}://{shown}/", allow_http=True)
    except urls.InvalidUrl:
        return
    assert GUARD.refusal_of_host(url.host)


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
    st.sampled_from(list(REFUSED_ADDRESSES)[:40]).map(IPv4Address).flatmap(lambda a: st.sampled_from(edges(a))),
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
