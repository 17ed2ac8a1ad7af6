"""Texts for people about what went wrong on the way to a receiver, bounded and without secrets.

Owns the wording for errors of the system and of TLS. It must not know requests: a reason never quotes one.
"""

import errno
import os
import socket
import ssl

from forbear.policy.verdict import ErrorClass

REASON_MAX = 300
"""Characters of a reason."""

# Not so EADDRNOTAVAIL, which is as well what there is to say of an IPv6 address on a machine without IPv6.
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_OURS = _SHORT | {errno.EADDRNOTAVAIL}


def bounded(reason: str) -> str:
    """The reason as it may be stored and shown: printable, at most 300 characters."""
    printable = "".join(char if char.isprintable() else "?" for char in reason[: REASON_MAX + 1])
    return printable if len(printable) <= REASON_MAX else printable[: REASON_MAX - 1] + "…"


def os_error_class(error: OSError) -> ErrorClass:
    """`INTERNAL` when this process or machine ran out of something, otherwise `CONNECT`: the way there is closed."""
    return ErrorClass.INTERNAL if error.errno in _OURS else ErrorClass.CONNECT


def is_short(error: OSError) -> bool:
    """Whether this process or machine has run out of something, wherever the way should have led."""
    return not isinstance(error, socket.gaierror) and error.errno in _SHORT


def os_reason(error: OSError) -> str:
    """What the system says, without what Python adds to it (addresses, for example)."""
    if isinstance(error, socket.gaierror):
        return error.strerror or "the name does not resolve"
    return os.strerror(error.errno) if error.errno else type(error).__name__


def tls_reason(error: ssl.SSLError) -> str:
    """What OpenSSL says: for a certificate that is refused, why (expired, self-signed, another name)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    return f"TLS failed: {(error.reason or type(error).__name__).replace('_', ' ').lower()}"
