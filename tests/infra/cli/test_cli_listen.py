"""`forbear listen`: a process with real sockets that verifies, deduplicates and tells."""

from __future__ import annotations

import re
import signal
import socket
import time

import httpx
import pytest
from typer.testing import CliRunner

from forbear.signing import parse_secret, sign
from infra.cli.main import app
from tests.infra.cli.processes import listening

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


def post(url: str, event_id: str, body: bytes, secret: str = SECRET, **more: str) -> int:
    """Deliver as Forbear does; gives the status."""
    now = int(time.time())
    headers = {
        "content-type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(now),
        "webhook-signature": sign([parse_secret(secret)], event_id, now, body),
        "idempotency-key": "dlv_1",
        "forbear-type": "invoice.paid",
        "forbear-attempt": "1",
    }
    return httpx.post(url, content=body, headers=headers | more, trust_env=False, timeout=30).status_code


def test_people_are_told_what_came_and_whether_it_verifies() -> None:
    with listening("--secret", SECRET) as listener:
        ready = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+/)", listener.line())
        assert ready
        url = f"{ready[1]}hook?a=1"
        assert post(url, "evt_1", b'{"a": "\\u001b"}\n') == 200
        assert re.fullmatch(r"\d\d:\d\d:\d\d  evt_1  invoice\.paid  attempt 1  verified  answered 200", listener.line())
        assert listener.line() == "    dlv_1  application/json  16 bytes"
        assert listener.line() == '    {"a": "\\u001b"}'
        assert post(url, "evt_1", b"\x1b[31m", **{"forbear-attempt": "2", "forbear-replay": "rpl_1"}) == 200
        assert listener.line().endswith("attempt 2  replay rpl_1  verified  seen before  answered 200")
        assert listener.line() == "    dlv_1  application/json  5 bytes"
        assert listener.line() == "    \\x1b[31m"
        assert post(url, "evt_2", b"{}", **{"webhook-id": "evt_3"}) == 401
        assert listener.line().endswith("NOT VERIFIED: No matching signature found  answered 401")
        assert listener.interrupt(signal.SIGINT) == 0


def test_programs_get_a_document_for_each() -> None:
    with listening("--secret", PUBLIC, "--fail", "1", "--status", "202", as_json=True) as listener:
        url = listener.document()["url"]
        assert post(url, "evt_1", b"\xff", PRIVATE) == 500
        first = listener.document()
        assert first["body"] == {"base64": "/w=="}
        assert (first["id"], first["verified"], first["why_not"], first["answered"]) == ("evt_1", True, None, 500)
        assert (first["method"], first["target"], first["headers"]["forbear-attempt"]) == ("POST", "/", "1")
        assert post(url, "evt_1", b"\xff", PRIVATE) == 202
        assert listener.document()["seen_before"] is False  # it was not taken the first time
        assert post(url, "evt_1", b"\xff", PRIVATE) == 202
        assert listener.document()["seen_before"] is True
        assert post(url, "evt_1", b"{}", SECRET) == 401
        refused = listener.document()
        assert (refused["verified"], refused["why_not"], refused["seen_before"]) == (
            False,
            "no signature matches",
            False,
        )
        assert listener.interrupt(signal.SIGTERM) == 0


def test_without_a_secret_nothing_is_verified_and_that_is_said() -> None:
    with listening() as listener:
        ready = listener.line()
        assert ready.endswith("(without --secret nothing is verified)")
        assert httpx.get(ready.split()[2], trust_env=False, timeout=30).status_code == 200
        assert listener.line().endswith("  GET /  not checked  answered 200")
        assert listener.line() == "    0 bytes"


def test_a_port_that_is_taken_is_one_line_and_two() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["listen", "--port", str(port)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: Port {port} is taken: stop what listens there, or choose another port.\n"


@pytest.mark.parametrize("secret", ["whsec_", "secret", PRIVATE])
def test_what_is_no_secret_of_a_receiver_is_one_line_and_two(secret: str) -> None:
    result = CliRunner().invoke(app, ["listen", "--port", "0", "--secret", secret])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert result.stderr.startswith("error: --secret: ")
