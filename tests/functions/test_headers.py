import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.headers import InvalidHeader, validate


def test_headers_become_bytes_in_the_order_and_spelling_given() -> None:
    given_headers = {"X-Api-Key": "k 1\t2", "authorization": "Bearer abc", "Accept": "*/*", "X-Empty": ""}
    assert validate(given_headers) == (
        (b"X-Api-Key", b"k 1\t2"),
        (b"authorization", b"Bearer abc"),
        (b"Accept", b"*/*"),
        (b"X-Empty", b""),
    )


def test_no_headers_are_as_good_as_none() -> None:
    assert validate({}) == ()


@pytest.mark.parametrize(
    "value",
    [
        "a\r\nX-Injected: 1",
        "a\n b",
        "\r",
        "\n",
        "a\n",
        "\0",
        "a\0b",
        "a\x7f",
        "a\x1b[0m",
        "é",
        "\u2028",
        "\U0001f600",
        "\ud800",
        " a",
        "a ",
        "\ta",
        "a\t",
        " ",
        "x" * 2001,
    ],
)
def test_values_that_break_out_of_their_line_are_refused(value: str) -> None:
    with pytest.raises(InvalidHeader, match="X-Custom"):
        validate({"X-Custom": value})


def test_a_refused_value_is_not_repeated_since_it_may_be_a_credential() -> None:
    for value in ("s3cret\n", "s3cret" * 400):
        with pytest.raises(InvalidHeader) as refused:
            validate({"Authorization": value})
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["", " ", "bad name", "X:", "X\r\nY", "X\n", "X\0", "é", "X(Y)", "a/b", '"a"', "x" * 101]
)
def test_names_that_are_no_tokens_are_refused(name: str) -> None:
    with pytest.raises(InvalidHeader, match="a header's name"):
        validate({name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "HTTP2-Settings",
        "Expect",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Accept-Encoding",
        "Content-Type",
        "Content-Encoding",
        "webhook-id",
        "Webhook-Signature",
        "webhook-timestamp",
        "webhook-anything",
        "Idempotency-Key",
        "forbear-attempt",
        "forbear-replay",
        "User-Agent",
        "traceparent",
        "tracestate",
    ],
)
@pytest.mark.parametrize("spelled", [str, str.upper, str.lower])
def test_headers_of_http_and_of_forbear_are_not_the_owners(name: str, spelled: type[str]) -> None:
    with pytest.raises(InvalidHeader, match=r"is set by (HTTP|Forbear); remove it"):
        validate({spelled(name): "1"})


def test_names_that_merely_resemble_reserved_ones_are_free() -> None:
    assert len(validate(dict.fromkeys(["X-Host", "webhook", "Proxied", "forbearance", "hosts", "Cookie"], "1"))) == 6


def test_names_that_differ_by_case_only_are_refused() -> None:
    with pytest.raises(InvalidHeader, match="twice"):
        validate({"X-Key": "1", "x-key": "2"})


def test_number_and_size_are_bounded() -> None:
    assert len(validate({f"X-{i}": "1" for i in range(20)})) == 20
    assert validate({"x" * 100: "y" * 2000})
    with pytest.raises(InvalidHeader, match="at most 20"):
        validate({f"X-{i}": "1" for i in range(21)})
    with pytest.raises(InvalidHeader, match="6000 characters in all"):
        validate({f"X-{i}": "y" * 2000 for i in range(3)})


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4))
def test_what_passes_can_stand_in_a_request_as_it_is(headers: dict[str, str]) -> None:
    try:
        checked = validate(headers)
    except InvalidHeader:
        return
    block = b"".join(b"%b: %b\r\n" % pair for pair in checked)
    assert block.count(b"\r") == block.count(b"\n") == len(headers)
    assert block.isascii()
    assert b"\0" not in block
