"""The guard: which addresses may be connected to, over which schemes and ports.

Endpoints are named by people who must not reach, through Forbear, what only Forbear's own network can reach. So
everything that is not globally reachable unicast is refused, in every spelling and every embedding of IPv4 in IPv6. The
guard judges addresses and host names as text; it resolves nothing and opens nothing. Whoever connects must ask it about
the very address that the connection goes to.

`ipaddress.is_global` is not used: it calls multicast, NAT64 and IPv4-translated forms of private addresses, site-local
and reserved space global. What no table can know: prefixes that a network uses for its own NAT64 (RFC 6052 section
2.2), and public addresses that lead back inside.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from forbear.urls import Url, refusal_of_service

type Network = IPv4Network | IPv6Network

# IANA IPv4 Special-Purpose Address Registry (RFC 6890 and its updates), what is not globally reachable, and more where
# noted. The two anycast exceptions inside 192.0.0.0/24 lead to the nearest NAT, so they are refused with the rest.
_REFUSED_IPV4: Final = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this network, RFC 791"),
        ("10.0.0.0/8", "private, RFC 1918"),
        ("100.64.0.0/10", "shared address space of carriers, RFC 6598"),
        ("127.0.0.0/8", "loopback, RFC 1122"),
        (
            "168.63.129.16/32",
            "metadata service of Azure",
        ),  # a public address that each of its machines sees as its host
        ("169.254.0.0/16", "link-local, where clouds have their metadata services, RFC 3927"),
        ("172.16.0.0/12", "private, RFC 1918"),
        ("192.0.0.0/24", "IETF protocol assignments, RFC 6890"),
        ("192.0.2.0/24", "documentation, RFC 5737"),
        ("192.88.99.0/24", "relays of 6to4, RFC 7526"),
        ("192.168.0.0/16", "private, RFC 1918"),
        ("198.18.0.0/15", "benchmarking, RFC 2544"),
        ("198.51.100.0/24", "documentation, RFC 5737"),
        ("203.0.113.0/24", "documentation, RFC 5737"),
        ("224.0.0.0/4", "multicast, RFC 5771"),
        ("255.255.255.255/32", "broadcast, RFC 919"),
        ("240.0.0.0/4", "reserved, RFC 1112"),
    )
)

# IANA IPv6 Special-Purpose Address Registry, the same way; the first match gives the reason. The globally reachable
# exceptions inside 2001::/23 (anycast to the nearest NAT, identifiers that are not routed) host no receivers either.
_REFUSED_IPV6: Final = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "unspecified, RFC 4291"),
        ("::1/128", "loopback, RFC 4291"),
        ("::/96", "IPv4-compatible, RFC 4291"),
        ("::ffff:0:0/96", "IPv4-mapped, RFC 4291"),
        ("::ffff:0:0:0/96", "IPv4-translated, RFC 2765"),
        ("64:ff9b:1::/48", "local-use NAT64, RFC 8215"),
        ("100::/64", "discard-only, RFC 6666"),
        ("100:0:0:1::/64", "dummy prefix, RFC 9780"),
        ("2001::/32", "Teredo, RFC 4380"),
        ("2001:2::/48", "benchmarking, RFC 5180"),
        ("2001::/23", "IETF protocol assignments, RFC 2928"),
        ("2001:db8::/32", "documentation, RFC 3849"),
        ("2002::/16", "6to4, RFC 3056"),
        ("3fff::/20", "documentation, RFC 9637"),
        ("5f00::/16", "segment routing, RFC 9602"),
        ("fc00::/7", "unique local, where AWS and Google have their metadata services, RFC 4193"),
        ("fe80::/10", "link-local, RFC 4291"),
        ("fec0::/10", "site-local, RFC 3879"),
        ("ff00::/8", "multicast, RFC 4291"),
    )
)

# IANA Internet Protocol Version 6 Address Space: what is assigned for global unicast. 64::/16 holds the well-known
# prefix of NAT64; the rest of it is unassigned and harmless, so neighbours of that prefix are not refused for nearness.
_UNICAST_IPV6: Final = (IPv6Network("2000::/3"), IPv6Network("64::/16"))

_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052 section 2.1
_ISATAP: Final = 0x00005EFE  # the interface identifier's upper half, but for its u and g bits (RFC 5214 section 6.1)
_ISATAP_MASK: Final = 0xFCFFFFFF

# Names that resolvers and hosts files give to the machine itself, and that clouds give to their metadata services.
_LOOPBACK_NAMES: Final = frozenset(
    {
        "localhost",  # with all below it, RFC 6761 section 6.3
        "localhost.localdomain",
        "localhost4",
        "localhost4.localdomain4",
        "localhost6",
        "localhost6.localdomain6",
        "ip6-localhost",
        "ip6-loopback",
    }
)
_METADATA_NAMES: Final = frozenset(
    {"metadata", "metadata.goog", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"}
)
_LOOPBACK: Final = ("127.0.0.1", "::1")
_METADATA: Final = ("169.254.169.254",)

_NUMBER: Final = re.compile("0x[0-9a-f]*|[0-9]+")
_OCTAL: Final = re.compile("0[0-7]*")


@dataclass(frozen=True, slots=True)
class Guard:
    """Judges addresses, with some networks allowed although they are not globally reachable.

    Attributes:
        allow: Networks to allow, for receivers on one's own machine or network. Each covers exactly the addresses that
            it contains: an IPv4 network covers neither the IPv4-mapped nor any other IPv6 form of its addresses.
        allow_http: Whether plain http is allowed.
        ports: The ports that are allowed; None for all.
    """

    allow: tuple[Network, ...] = ()
    allow_http: bool = False
    ports: frozenset[int] | None = None

    def refusal_of_service(self, url: Url) -> str | None:
        """Judge a URL's scheme and port.

        Args:
            url: Where a connection is about to go to.

        Returns:
            Why it must not; None if it may.
        """
        return refusal_of_service(url.scheme, url.port, allow_http=self.allow_http, ports=self.ports)

    def refusal(self, address: str) -> str | None:
        """Judge an address that a connection is about to go to. Cheap: verdicts are remembered.

        Args:
            address: An IP address as a resolver gives it; a zone behind % does not matter.

        Returns:
            Why it must not be connected to; None if it may be.
        """
        return _refusal(address, self.allow)

    def refusal_of_host(self, host: str) -> str | None:
        """Judge a URL's host before anything is resolved, to tell its owner early.

        Sees through every spelling of an address that `getaddrinfo` accepts, and knows some names. A name that it does
        not object to may still resolve to an address that is refused.

        Args:
            host: A name or an address, with or without brackets.

        Returns:
            Why no connection can go there; None if nothing is against it so far.
        """
        name = unicodedata.normalize("NFKC", host).replace("。", ".").lower().removesuffix(".")
        if ":" in name or name.startswith("["):
            return self.refusal(name.removeprefix("[").removesuffix("]"))
        if not name:
            return "the host is empty"
        if _NUMBER.fullmatch(name.rpartition(".")[2]):
            address = _ipv4_of(name)
            return self.refusal(str(address)) if address else f"{name[:60]} ends in a number, but is no IPv4 address"
        if name in _LOOPBACK_NAMES or name.endswith(".localhost"):
            return self._refusal_of_name(name, _LOOPBACK)
        if name in _METADATA_NAMES:
            return self._refusal_of_name(name, _METADATA)
        return None

    def _refusal_of_name(self, name: str, addresses: tuple[str, ...]) -> str | None:
        """Refuse a name unless one of the addresses that it stands for is allowed."""
        refusals = [self.refusal(address) for address in addresses]
        return None if None in refusals else f"{name}: {refusals[0]}"


@lru_cache(maxsize=4096)
def _refusal(text: str, allow: tuple[Network, ...]) -> str | None:
    try:
        address = IPv6Address(text.partition("%")[0]) if ":" in text else IPv4Address(text)
    except ValueError:
        return f"{text[:60]!r} is not an IP address"
    if any(address in network for network in allow):
        return None
    kind = _not_global_ipv4(address) if isinstance(address, IPv4Address) else _not_global_ipv6(address)
    return kind and f"{address} is not globally reachable ({kind})"


def _not_global_ipv4(address: IPv4Address) -> str | None:
    """Say what an address is that is not globally reachable; None if it is."""
    return next((what for network, what in _REFUSED_IPV4 if address in network), None)


def _not_global_ipv6(address: IPv6Address) -> str | None:
    """Say what an address is that is not globally reachable; None if it is."""
    for network, what in _REFUSED_IPV6:
        if address in network:
            return what
    if not any(address in network for network in _UNICAST_IPV6):
        return "reserved, RFC 4291"
    # Two forms are legitimate for public IPv4 addresses only: a network without IPv4 reaches all of IPv4 through NAT64.
    if address in _NAT64:
        form = "NAT64, RFC 6052"
    elif (int(address) >> 32) & _ISATAP_MASK == _ISATAP:
        form = "ISATAP, RFC 5214"
    else:
        return None
    embedded = IPv4Address(int(address) & 0xFFFFFFFF)
    kind = _not_global_ipv4(embedded)
    return kind and f"{form}, of {embedded}: {kind}"


def _ipv4_of(host: str) -> IPv4Address | None:
    """Read an IPv4 address in any spelling of inet_aton, which getaddrinfo takes too.

    One to four parts, decimal, octal (0…) or hexadecimal (0x…); the last one fills what is left (url.spec.whatwg.org,
    section 3.5, "IPv4 parser"; POSIX inet_addr). None if it is none.
    """
    parts = host.split(".")
    numbers: list[int] = []
    for part in parts:
        if not _NUMBER.fullmatch(part) or len(part) > 255:
            return None
        if part.startswith("0x"):
            numbers.append(int(part[2:] or "0", 16))
        elif part.startswith("0"):
            if not _OCTAL.fullmatch(part):
                return None
            numbers.append(int(part, 8))
        else:
            numbers.append(int(part))
    *front, last = numbers
    if len(parts) > 4 or any(number > 255 for number in front) or last >= 256 ** (5 - len(parts)):
        return None
    for place, number in enumerate(front):
        last += number << (8 * (3 - place))
    return IPv4Address(last)
