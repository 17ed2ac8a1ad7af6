"""TLS: who is trusted, for which name, and what else can go wrong on the way."""

import datetime as dt
import ssl
import warnings

import trustme

from forbear.policy.verdict import ErrorClass
from forbear.sender import Sender
from tests.functions.sender.building import NAME, Authority, Start, post, server_context
from tests.functions.sender.receivers import OK, Conversation, answering, silent


async def test_a_good_certificate_is_taken_and_the_name_sent(
    sender: Sender, start: Start, authority: Authority
) -> None:
    receiver = await start(answering(OK), tls=authority.server(NAME))
    for _ in range(2):
        response = await post(sender, receiver, scheme="https", body=b"x" * 100_000)
        assert (response.status, response.error, response.body) == (200, None, b"ok")
    assert receiver.server_names == [NAME]
    assert [len(received.body) for received in receiver.received] == [100_000] * 2
    assert receiver.connections == 1


async def test_an_address_is_verified_as_an_address(sender: Sender, start: Start, authority: Authority) -> None:
    good = await start(answering(OK), tls=authority.server("127.0.0.1"))
    assert (await post(sender, good, scheme="https", host="127.0.0.1")).status == 200
    other = await start(answering(OK), tls=authority.server("127.0.0.2"))
    response = await post(sender, other, scheme="https", host="127.0.0.1")
    assert (response.status, response.error) == (None, ErrorClass.TLS)


async def test_a_certificate_for_another_name_is_refused(sender: Sender, start: Start, authority: Authority) -> None:
    receiver = await start(answering(OK), tls=authority.server("other.example"))
    response = await post(sender, receiver, scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)
    assert "mismatch" in response.reason
    assert not receiver.received


async def test_the_pinned_address_is_not_the_name_that_is_verified(
    sender: Sender, start: Start, authority: Authority
) -> None:
    receiver = await start(answering(OK), tls=authority.server("127.0.0.1"))
    response = await post(sender, receiver, scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)


async def test_an_expired_certificate_is_refused(sender: Sender, start: Start, authority: Authority) -> None:
    past = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    certificate = authority.ca.issue_cert(NAME, not_before=past, not_after=past + dt.timedelta(days=1))
    receiver = await start(answering(OK), tls=server_context(certificate))
    response = await post(sender, receiver, scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)
    assert "expired" in response.reason
    assert not receiver.received


async def test_a_self_signed_certificate_is_refused(sender: Sender, start: Start) -> None:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with ca.cert_pem.tempfile() as certificate, ca.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)  # the authority's own
    receiver = await start(answering(OK), tls=context)
    response = await post(sender, receiver, scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)
    assert "self-signed" in response.reason
    assert not receiver.received


async def test_a_certificate_of_an_unknown_authority_is_refused(sender: Sender, start: Start) -> None:
    receiver = await start(answering(OK), tls=server_context(trustme.CA().issue_cert(NAME)))
    response = await post(sender, receiver, scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)
    assert "certificate" in response.reason


async def test_tls_before_1_2_is_refused(sender: Sender, start: Start, authority: Authority) -> None:
    context = authority.server(NAME)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    response = await post(sender, await start(answering(OK), tls=context), scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)


async def test_http_1_1_is_negotiated_where_the_receiver_prefers_http_2(
    sender: Sender, start: Start, authority: Authority
) -> None:
    context = authority.server(NAME)
    context.set_alpn_protocols(["h2", "http/1.1"])
    chosen = []

    async def script(peer: Conversation) -> None:
        chosen.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await answering(OK)(peer)

    receiver = await start(script, tls=context)
    assert (await post(sender, receiver, scheme="https")).status == 200
    assert chosen == ["http/1.1"]


async def test_https_to_a_plain_receiver_is_a_tls_error(sender: Sender, start: Start) -> None:
    async def script(peer: Conversation) -> None:
        await peer.reader.read(5)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.until_hung_up()

    response = await post(sender, await start(script), scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)


async def test_http_to_a_tls_receiver_is_an_error(sender: Sender, start: Start, authority: Authority) -> None:
    receiver = await start(answering(OK), tls=authority.server(NAME))
    response = await post(sender, receiver)
    assert response.status is None
    assert response.error in {ErrorClass.PROTOCOL, ErrorClass.RESET}


async def test_a_receiver_that_closes_in_the_handshake_is_a_tls_error(sender: Sender, start: Start) -> None:
    async def script(peer: Conversation) -> None:
        await peer.reader.read(5)

    response = await post(sender, await start(script), scheme="https")
    assert (response.status, response.error) == (None, ErrorClass.TLS)


async def test_a_handshake_that_hangs_ends_at_the_connect_timeout(sender: Sender, start: Start) -> None:
    receiver = await start(silent)
    response = await post(sender, receiver, scheme="https", connect_timeout_s=0.2)
    assert (response.status, response.error) == (None, ErrorClass.TIMEOUT)
    assert 0.1 < response.latency_s < 5
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_timeouts_hold_over_tls(sender: Sender, start: Start, authority: Authority) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.until_hung_up()

    receiver = await start(script, tls=authority.server(NAME))
    response = await post(sender, receiver, scheme="https", timeout_s=0.5)
    assert (response.status, response.error) == (None, ErrorClass.TIMEOUT)
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_a_stale_tls_connection_costs_one_free_resend(sender: Sender, start: Start, authority: Authority) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()

    receiver = await start(script, tls=authority.server(NAME))
    for _ in range(2):
        assert (await post(sender, receiver, scheme="https")).status == 200
    assert [received.connection for received in receiver.received] == [1, 1, 2]
