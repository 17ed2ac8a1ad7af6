"""Who calls, and whether they may: the gateway's word, an API key, or (on a local stack) nobody's.

Owns the verdicts and how they are said. Which route asks for what is `routes`'s, what a key looks like `api_keys`'s.
Knows no operation and no HTTP but a status and a header.

Nothing here is remembered but the data key: each verdict on a key is the database's, asked anew, so a revoked key is
refused from the next request on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import psycopg

from forbear import api_keys
from forbear.api_keys import ApiKey, InvalidToken
from forbear.db import Database, statement
from forbear.round_trip import Statement
from forbear.routes import Held, KeyScope, Needs, Rule
from forbear.settings import settings
from forbear.vault import Keyring, Purpose, wrapping

# RFC 9110 11.1: the scheme's name is in any case. Other bearers' tokens are not ours to judge.
_BEARER: Final = re.compile(r"bearer +(fbk_.*)", re.IGNORECASE | re.DOTALL)


class Refused(Exception):
    """A caller may not do this.

    Args:
        status: HTTP status, 401 or 403.
        detail: why, and what to do about it.
        challenge: the value of WWW-Authenticate (RFC 6750 section 3); None: there is none.
    """

    def __init__(self, status: int, detail: str, challenge: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.challenge = challenge


class Elsewhere(Refused):
    """A key that is bound to a tenant was to write what is another's.

    Args:
        tenant: the key's.
    """

    def __init__(self, tenant: str) -> None:
        super().__init__(403, f"this API key is for the tenant {tenant}: name that one, or use another key")
        self.tenant = tenant


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    Attributes:
        key: its API key; None: it needs none.
        tenant: whom it is held to; None: nobody, or (`Held.EVENTS`) that is found out with its key.
    """

    key: ApiKey | None = None
    tenant: str | None = None

    def hold(self, named: str | None) -> None:
        """Refuse another tenant than the caller's.

        Args:
            named: the tenant that a request names; None: none.

        Raises:
            Elsewhere: it is another.
        """
        if self.tenant is not None and named not in {None, self.tenant}:
            raise Elsewhere(self.tenant)


def admit(event: Mapping[str, Any], rule: Rule, database: Callable[[], Database]) -> Caller:
    """Who makes a request, if it may call the route.

    Args:
        event: AWS's, of payload format 2.0.
        rule: the route's.
        database: where keys are checked; not called for requests without one.

    Raises:
        Refused: 401, nobody vouches for it, or its key is not valid; 403, its key is not for this.
        KeyUnavailable: it has a key, and the data key cannot be had.
        Unavailable: it has a key, and the database cannot be reached.
    """
    if rule.needs is Needs.NOTHING:
        return Caller()
    headers = event.get("headers") or {}
    bearer = _BEARER.fullmatch(headers.get("authorization", ""))
    if bearer is None:
        if _is_vouched_for(event):
            return Caller()
        if "fbk_" in headers.get("authorization", ""):  # a key was meant: as on a stack that is not open, it counts
            raise _not_valid()
        if settings().open:
            return Caller()
        raise Refused(
            401,
            "nobody vouches for this request: sign it with AWS Signature Version 4, or send an API key in the header"
            " Authorization: Bearer fbk_…",
            "Bearer",
        )
    try:
        raw = api_keys.decode(bearer[1])
        key = api_keys.verify(raw, keyring(database(), settings().key).mac)
    except InvalidToken:
        raise _not_valid() from None
    if rule.held is Held.EVENTS:
        return Caller(key)
    caller = Caller(key, authorise(database(), key, rule.needs))
    if rule.needs is Needs.NO_KEY:
        raise Refused(403, "no API key may do this: sign the request with AWS Signature Version 4 and send no key")
    if rule.held is Held.OUT and caller.tenant is not None:
        raise Refused(403, f"this is every tenant's, and this API key is for {caller.tenant} only: use one for all")
    return caller


def _is_vouched_for(event: Mapping[str, Any]) -> bool:
    """Whether API Gateway, or Lambda before a function URL, has admitted the caller: then it says who that is.

    `authorizer` alone says nothing. Where nobody is asked it is null for a function URL (AWS Lambda developer guide,
    "Invoking Lambda function URLs"), and may be `{"lambda": null}` from an HTTP API (recorded from one: no-auth.json in
    packages/parser/tests/events/apigw-http of aws-powertools/powertools-lambda-typescript).
    """
    authorizer = event["requestContext"].get("authorizer") or {}
    return bool(authorizer.get("iam") or authorizer.get("jwt"))


def held_query(caller: Caller, rule: Rule, path: Mapping[str, str], query: Mapping[str, str]) -> Mapping[str, str]:
    """A request's query parameters, with the caller's tenant where the route takes one.

    Args:
        caller: who calls.
        rule: the route's.
        path: the path's parameters.
        query: the query parameters as they came.

    Raises:
        Elsewhere: path or query name another tenant.
    """
    if caller.tenant is None:
        return query
    if rule.held is Held.PATH:
        caller.hold(path.get("tenant", ""))
    if rule.held is not Held.QUERY:
        return query
    caller.hold(query.get("tenant"))
    return {**query, "tenant": caller.tenant}


def authorise(database: Database, key: ApiKey, needs: KeyScope | Needs) -> str | None:
    """The tenant that a key is bound to (None: to none), if it is valid and has a scope.

    Raises:
        Refused: 401, it is not valid; 403, it lacks the scope.
        Unavailable: the database cannot be reached.
    """
    sql, parameters = authorisation(key, needs)
    try:
        row = database.run(
            lambda connection: psycopg.RawCursor(connection).execute(sql, parameters).fetchone(), repeatable=True
        )
    except psycopg.Error as error:
        refused = refusal(error, needs)
        if refused is None:
            raise
        raise refused from None
    tenant: str | None = row["tenant"] if row else None
    return tenant


def authorisation(key: ApiKey, needs: KeyScope | Needs, tenants: Sequence[str] | None = None) -> Statement:
    """The statement that fails unless a key is valid and may do this.

    Args:
        key: the key.
        needs: the scope that it must have; none in particular if this is no scope.
        tenants: whom something is to be written for.
    """
    scope = needs if isinstance(needs, KeyScope) else None
    wanted = None if tenants is None else sorted(set(tenants))
    return Statement(statement("authorise"), (key.id, key.hash, scope, wanted))


def refusal(error: psycopg.Error, needs: KeyScope | Needs) -> Refused | None:
    """What an error says that the SQL function forbear.authorise raised; None: it is another's."""
    match error.sqlstate:
        case "KY401":
            return _not_valid()
        case "KY403":
            return Refused(
                403,
                f"this API key lacks the scope {needs}: use one that has it",
                f'Bearer error="insufficient_scope", scope="{needs}"',
            )
        case "KY404":
            return Elsewhere(error.diag.message_detail or "")
    return None


@lru_cache(maxsize=1)
def keyring(database: Database, key: str | None) -> Keyring:
    """The data keys for API keys, read and unwrapped once in the life of an execution environment.

    Args:
        database: where they lie.
        key: what unwraps them, the setting `FORBEAR_KEY`.

    Raises:
        KeyUnavailable: they cannot be had.
        Unavailable: the database cannot be reached.
    """
    outside = wrapping(key)
    rows = database.run(
        lambda connection: connection.execute(statement("data_keys"), {"purpose": Purpose.API_KEYS}).fetchall(),
        repeatable=True,
    )
    return Keyring(Purpose.API_KEYS, {row["id"]: outside.unwrap(row["wrapped"], Purpose.API_KEYS) for row in rows})


def _not_valid() -> Refused:
    """The one answer to keys that are malformed, made up, unknown, revoked or expired."""
    return Refused(
        401,
        "this API key is not valid (any more): send one, whole, that is neither revoked nor expired",
        'Bearer error="invalid_token"',
    )
