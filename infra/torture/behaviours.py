"""The ways to behave badly that there are, and what must come of each: `Behaviour`s in groups.

A table to read: behaviour, then status or error class, then verdict. A status stands as soon as its head is whole,
whatever becomes of the body (forbear.sender); every error of a receiver's making is retried.
"""

from __future__ import annotations

import asyncio
import gzip
import math
import struct
from collections.abc import Iterator

from forbear.policy.verdict import ErrorClass, Verdict
from infra.torture.authority import Certificate
from infra.torture.hostile import Behaviour, Peer, Script
from infra.torture.names import Name

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_HEAD = b"HTTP/1.1 200 OK\r\n"
_BODY = b"Content-Length: 2\r\n\r\nok"
_DRIP_S = 1.0
CONNECT_S, TIMEOUT_S = 2.0, 3.0
"""What the endpoints of hostile receivers have, in seconds: enough for a busy machine to have answered the others."""


# Scripts.


async def silent(peer: Peer) -> None:
    """Reads, and never answers."""
    await peer.request()
    await peer.until_hung_up()


def answering(answer: bytes, status: int = 200) -> Script:
    """The same response to every request."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer(answer, status)

    return script


def _then(*pieces: bytes, status: int | None = None, reset: bool = False) -> Script:
    """Reads a request, sends these and closes; the last piece makes the head whole if there is a status."""

    async def script(peer: Peer) -> None:
        await peer.request()
        for piece in pieces:
            await peer.send(piece, status=status if piece is pieces[-1] else None)
        if reset:
            peer.reset()

    return script


def _without_end(head: bytes, filler: bytes, *, status: int | None = None, every_s: float = 0.0) -> Script:
    """Reads a request and sends a head, and then the same for ever."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head, status=status)
        while True:
            await peer.send(filler)
            await asyncio.sleep(every_s)

    return script


async def _resets_at_once(peer: Peer) -> None:
    peer.reset()


async def _closes_at_once(_peer: Peer) -> None:
    return


async def _closes_in_the_request(peer: Peer) -> None:
    await peer.some()


async def _shuts_without_an_answer(peer: Peer) -> None:
    await peer.request()
    peer.shut()
    await peer.until_hung_up()


async def _answers_once(peer: Peer) -> None:
    await peer.request()
    await peer.answer(OK, 200)


async def _drops_the_next(peer: Peer) -> None:
    await peer.request()
    await peer.answer(OK, 200)
    await peer.drop()


async def _answers_twice(peer: Peer) -> None:
    await peer.request()
    await peer.answer(OK + b"HTTP/1.1 500 Oops\r\n" + _BODY, 200)
    await peer.until_hung_up()


def bomb_of_gzip() -> bytes:
    """A gigabyte of zeros in one megabyte: members of one file (RFC 1952 section 2.2), which take no time to make."""
    return gzip.compress(bytes(1 << 20), 9) * 1024


def bomb_of_zstd() -> bytes:
    """A gigabyte of zeros in 32 KiB: a frame of run-length blocks (RFC 8878 section 3.1.1.2)."""
    block_bytes, blocks = 128 << 10, 8192
    block = struct.pack("<I", block_bytes << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", block_bytes << 3 | 1 << 1 | 1)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x50" + block * (blocks - 1) + last


def _bomb(coding: bytes, body: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(
            _HEAD + b"Content-Encoding: " + coding + b"\r\nContent-Length: %d\r\n\r\n" % len(body), status=200
        )
        await peer.send(body)
        await peer.until_hung_up()

    return script


# What comes of them.

_BEFORE_REQUESTS = frozenset({ErrorClass.DNS, ErrorClass.BLOCKED, ErrorClass.CONNECT, ErrorClass.TLS})


def _refused(name: str, script: Script | None, error: ErrorClass, reason: str = "", **more: object) -> Behaviour:
    """An attempt without a status."""
    return Behaviour(
        name=name,
        script=script,
        verdict=Verdict.RETRY,
        errors=frozenset({error}),
        reason=reason,
        **({"asked": error not in _BEFORE_REQUESTS} | more),  # type: ignore[arg-type] # Behaviour's own
    )


def _taken(name: str, script: Script, reason: str = "", status: int = 200, **more: object) -> Behaviour:
    """An attempt with a status, and its verdict by the default policy."""
    verdict = {2: Verdict.SUCCESS, 3: Verdict.PERMANENT, 5: Verdict.RETRY}[status // 100]
    return Behaviour(
        name=name,
        script=script,
        verdict=verdict,
        status=status,
        reason=reason,
        **more,  # type: ignore[arg-type] # Behaviour's own
    )


ALONE = _taken("alone", answering(OK))
SILENT = _refused("never-answers", silent, ErrorClass.TIMEOUT, "waiting for the response")

CONNECTIONS = (
    SILENT,
    _refused("refuses", None, ErrorClass.CONNECT),
    Behaviour(
        name="resets-at-once",
        script=_resets_at_once,
        asked=False,
        verdict=Verdict.RETRY,
        errors=frozenset({ErrorClass.RESET, ErrorClass.CONNECT}),  # as the sender has noticed before it writes, or not
    ),
    _refused("closes-at-once", _closes_at_once, ErrorClass.RESET, "before any response", asked=False),
    _refused("closes-in-the-request", _closes_in_the_request, ErrorClass.RESET, "before any response", asked=False),
    _refused("closes-after-the-request", _then(), ErrorClass.RESET, "before any response"),
    _refused("resets-after-the-request", _then(reset=True), ErrorClass.RESET, "before any response"),
    _refused("shuts-without-an-answer", _shuts_without_an_answer, ErrorClass.RESET, "before any response"),
    _refused("closes-in-the-status-line", _then(b"HTTP/1.1 2"), ErrorClass.RESET, "of the response's head"),
    _refused("closes-in-the-headers", _then(_HEAD, b"X-Half: "), ErrorClass.RESET, "of the response's head"),
    _taken("closes-before-the-body", _then(_HEAD + b"Content-Length: 2\r\n\r\n", status=200), "before the response's"),
    _taken(
        "closes-in-a-chunk",
        _then(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf", status=200),
        "before the response's body did",
    ),
    _refused(
        "drips-a-reason",
        _without_end(b"HTTP/1.1 200 O", b"K", every_s=_DRIP_S),
        ErrorClass.TIMEOUT,
        "the response's head",
    ),
    _refused(
        "drips-headers", _without_end(_HEAD + b"X: ", b"x", every_s=_DRIP_S), ErrorClass.TIMEOUT, "the response's head"
    ),
    _taken(
        "drips-a-body",
        _without_end(_HEAD + b"Content-Length: 9999\r\n\r\n", b"x", status=200, every_s=_DRIP_S),
        "not complete in time",
    ),
    # One after the other, so that each finds the connection of the one before.
    _taken("closes-after-each-answer", _answers_once, concurrency=1),
    _taken("announces-to-close", answering(_HEAD + b"Connection: close\r\n" + _BODY), concurrency=1),
    _taken("drops-the-next-request", _drops_the_next, concurrency=1),
    _taken("answers-twice", _answers_twice, concurrency=1),
)

_MALFORMED = {
    "no-colon": _HEAD + b"HeaderInjection Injected-Header\r\n" + _BODY,
    "spaces-in-a-name": _HEAD + b"Spaces In Name: v\r\n" + _BODY,
    "name-not-ascii": _HEAD + b"\xc3\xa9: v\r\n" + _BODY,
    "nul-in-a-header": _HEAD + b"X: a\0b\r\n" + _BODY,
    "control-in-a-header": _HEAD + b"X: \xff\x01\r\n" + _BODY,
    "folded-header": _HEAD + b"X: a\r\n b\r\n" + _BODY,
    "two-lengths": _HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
    "length-and-chunked": _HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "length-without-end": _HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\nok",
    "http-0.9": b"<html>Welcome</html>\r\n",
    "http-2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http-2-frames": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "http-2.0": b"HTTP/2.0 200 OK\r\n" + _BODY,
    "smtp": b"220 mail.example ESMTP\r\n",
    "no-status": b"HTTP/1.1\r\n" + _BODY,
    "status-099": b"HTTP/1.1 099 OK\r\n" + _BODY,
    "status-600": b"HTTP/1.1 600 OK\r\n" + _BODY,
    "status-999": b"HTTP/1.1 999 OK\r\n" + _BODY,
    "status-2000": b"HTTP/1.1 2000 OK\r\n" + _BODY,
    "switches-protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
}
_ODD = {
    "no-reason": b"HTTP/1.1 200\r\n" + _BODY,
    "reason-not-ascii": b"HTTP/1.1 200 Alles gr\xc3\xbcn\r\n" + _BODY,
    "header-not-ascii": _HEAD + b"X: na\xefve\xff\r\n" + _BODY,
    "nul-in-the-body": _HEAD + b"Content-Length: 3\r\n\r\na\0b",
    "body-not-ascii": _HEAD + b"Content-Type: text/plain\r\nContent-Length: 4\r\n\r\n\xff\xfe\xed\xa0",
    "continues": b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    "early-hints": b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n" * 50 + OK,
}

RESPONSES = (
    SILENT,
    *(_refused(name, answering(answer), ErrorClass.PROTOCOL) for name, answer in _MALFORMED.items()),
    *(_taken(name, answering(answer)) for name, answer in _ODD.items()),
    _taken("http-1.0", _then(b"HTTP/1.0 200 OK\r\n\r\nok until the end", status=200)),
    _refused(
        "hints-without-end", _without_end(b"", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 20), ErrorClass.TOO_LARGE
    ),
    _refused(
        "hints-now-and-then",
        _without_end(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", every_s=_DRIP_S / 2),
        ErrorClass.TIMEOUT,
    ),
    _refused("head-without-end", _without_end(_HEAD, b"X-Filler: " + b"x" * 990 + b"\r\n"), ErrorClass.TOO_LARGE),
)

_CHUNKED, _LONG = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"Content-Length: 999999999999\r\n\r\n"

BODIES = (
    SILENT,
    _taken("chunks-without-end", _without_end(_CHUNKED, b"2000\r\n%b\r\n" % (b"x" * 8192), status=200), "only the"),
    _taken("a-terabyte", _without_end(_HEAD + _LONG, b"x" * 65536, status=200), "only the first"),
    _taken("body-until-the-end", _without_end(_HEAD + b"\r\n", b"x" * 65536, status=200), "only the first"),
    _taken(
        "error-without-end",
        _without_end(b"HTTP/1.1 500 Oops\r\n" + _LONG, b"x" * 65536, status=500),
        "only the first",
        status=500,
    ),
    _taken(
        "extensions-without-end",
        _without_end(_CHUNKED, b"1;%b\r\nx\r\n" % (b"e" * 8000), status=200),
        "too many bytes",
    ),
    _taken(
        "trailers-without-end",
        _without_end(_CHUNKED + b"0\r\n", b"X: %b\r\n" % (b"t" * 4000), status=200),
        "too many bytes",
    ),
    _taken("bomb-of-gzip", _bomb(b"gzip", bomb_of_gzip()), "only the first"),
    _taken("bomb-of-zstd", _bomb(b"zstd", bomb_of_zstd()), "only the first"),
)

_NOT_VERIFIED = "certificate refused"

CERTIFICATES = (
    SILENT,
    _taken("good-certificate", answering(OK), certificate=Certificate.GOOD),
    *(
        _refused(f"{certificate}-certificate", answering(OK), ErrorClass.TLS, _NOT_VERIFIED, certificate=certificate)
        for certificate in Certificate
        if certificate is not Certificate.GOOD
    ),
)


def _redirecting(status: int, location: str) -> Script:
    head = f"HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\n"
    return answering(head.encode() + (b"\r\n" if status == 304 else _BODY), status)


def redirects(locations: Iterator[str]) -> tuple[Behaviour, ...]:
    """Every redirect there is, each to the next of these places."""
    return (
        SILENT,
        *(
            _taken(f"redirects-{status}", _redirecting(status, next(locations)), status=status)
            for status in range(300, 309)
        ),
    )


_PUBLIC = "45.33.{}.{}"
"""Made-up addresses; the network is one that anybody may have."""


def public(of: int, number: int = 1) -> str:
    """A made-up public address of a name."""
    return _PUBLIC.format(of, number)


FORBIDDEN = ("127.0.0.2", "169.254.169.254", "10.0.0.1", "::ffff:127.0.0.1", "fd00:ec2::254", "0.0.0.0")  # noqa: S104
_DEAD = (public(9, 1), public(9, 2), public(9, 3), public(9, 4))
REFUSING, SWALLOWING = _DEAD, public(9, 9)

NAMES = (
    SILENT,
    _refused("name-fails", answering(OK), ErrorClass.DNS, host=Name(((),))),
    _refused(
        "name-hangs",
        answering(OK),
        ErrorClass.TIMEOUT,
        "resolving",
        host=Name(((public(1),),), after_s=math.inf),
        asked=False,
    ),
    _taken("name-is-slow", answering(OK), host=Name(((public(2),),), after_s=0.7), address=public(2)),
    _taken(
        "first-addresses-are-dead",
        answering(OK),
        host=Name(((_DEAD[0], SWALLOWING, _DEAD[1], public(3)),)),
        address=public(3),
    ),
    _refused("too-many-are-dead", answering(OK), ErrorClass.CONNECT, host=Name(((*_DEAD, public(4)),))),
    *(
        _refused(f"forbidden-{number}", answering(OK), ErrorClass.BLOCKED, host=Name(((address,),)))
        for number, address in enumerate(FORBIDDEN)
    ),
    _refused(
        "forbidden-among-others",
        answering(OK),
        ErrorClass.BLOCKED,
        host=Name(((public(5), FORBIDDEN[1], public(6)),)),
    ),
    # Public when it is checked; whoever looks it up again to connect is led inside.
    *(
        _taken(
            f"rebinds-{number}",
            answering(OK),
            host=Name(((public(7, number + 1),), (address,))),
            address=public(7, number + 1),
        )
        for number, address in enumerate(FORBIDDEN)
    ),
)
