"""Where the API and the replay function are: from the command line, the environment, or a stack that `forbear up` runs.

Owns that order. Calls nobody.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from infra.cli.errors import UsageError

UP_FILE = Path(".forbear/up.json")
"""Where `forbear up` says, in the folder it was started in, what it serves: `{"api_url": …, "replay_url": …}`."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to call.

    Attributes:
        url: http or https, without a slash at the end.
        from_up: Whether it came from the file of `forbear up` and was not given.
    """

    url: str
    from_up: bool

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine; such a stack takes requests without a signature."""
        return is_loopback(urlsplit(self.url).hostname or "")


@dataclass(frozen=True, slots=True)
class Given:
    """The addresses, and the API key, that were given by options or environment variables."""

    url: str | None = None
    replay_url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def replay_path(self) -> str:
        """Where replays are asked for, below the address that `replay` gives."""
        return "/v1/replays" if self.api_key else "/"

    def api(self) -> Address:
        """Where the HTTP API is.

        Raises:
            UsageError: It was not given and no local stack runs here, or it is no URL.
        """
        return self._find(self.url, "api_url", "API", "--url", "FORBEAR_URL")

    def replay(self) -> Address:
        """Where the replay function's URL is; with an API key, which that does not take, where the API is.

        Raises:
            UsageError: As with `api`.
        """
        if self.api_key:
            return self.api()
        return self._find(self.replay_url, "replay_url", "replay function", "--replay-url", "FORBEAR_REPLAY_URL")

    def _find(self, given: str | None, member: str, what: str, option: str, variable: str) -> Address:
        if given:
            return Address(_checked(given, option), from_up=False)
        # One address given and the other one found here would be two different stacks, most likely.
        found = None if self.url or self.replay_url else _of_local_stack(member)
        if not found:
            raise UsageError(
                f"where is the {what}? Start a stack here with `forbear up`, or give {option} or set {variable}"
            )
        return Address(found, from_up=True)


def is_loopback(host: str) -> bool:
    """Whether a URL's host (IPv6 without brackets) is this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _of_local_stack(member: str) -> str | None:
    try:
        document = json.loads(UP_FILE.read_text(encoding="utf-8"))
        return None if document[member] is None else str(document[member]).rstrip("/")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{UP_FILE} cannot be read ({error}): start `forbear up` anew, or give --url") from error


def _checked(url: str, option: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(f"{option}: {url!r} is not the http or https address of a stack")
    return url.rstrip("/")
