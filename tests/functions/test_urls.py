import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.urls import InvalidUrl, Url, parse
from tests.functions.addresses.spellings import URLS


def test_a_url_is_taken_apart() -> None:
    assert parse("HTTPS://Hooks.Example.COM:8443/a/b?x=1&y", allow_http=False) == Url(
        scheme="https",
        host="hooks.example.com",
        port=8443,
        target=b"/a/b?x=1&y",
        authority="hooks.example.com:8443",
    )


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("https://example.com", "https://example.com/"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com:80/", "http://example.com/"),
        ("http://example.com:00443/", "http://example.com:443/"),
        ("https://example.com?x", "https://example.com/?x"),
        ("https://EXAMPLE.com./A", "https://example.com/A"),
        ("https://my_host/", "https://my_host/"),
        ("https://_a.-b-.example.com/", "https://_a.-b-.example.com/"),
        ("http://localhost:8080/", "http://localhost:8080/"),
        ("http://receiver/", "http://receiver/"),
        ("https://192.0.2.1/", "https://192.0.2.1/"),
        ("https://1.example/", "https://1.example/"),
        ("https://0x7f.example/", "https://0x7f.example/"),
        ("https://[2001:DB8:0::1]/", "https://[2001:db8::1]/"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("https://[::ffff:127.0.0.1]", "https://[::ffff:127.0.0.1]/"),
        ("https://b\u00fccher.example/", "https://xn--bcher-kva.example/"),
        ("https://B\u00dcCHER\u3002example/", "https://xn--bcher-kva.example/"),
        ("https://my_b\u00fccher.a_b.\u00e9.fr/", None),
        ("https://a_b.b\u00fccher.fr/", "https://a_b.xn--bcher-kva.fr/"),
        ("https://fa\u00df.de/", "https://xn--fa-hia.de/"),
        ("https://xn--i-7iq.ws/", "https://xn--i-7iq.ws/"),
        ("https://\uff11\uff12\uff17.0.0.1/", "https://127.0.0.1/"),
        ("https://\u2460\u2461\u2466\u3002\u24ea.\u24ea.\u2460/", "https://127.0.0.1/"),
        ("https://\u24dbocalhost/", "https://localhost/"),
        ("https://" + "a" * 63 + ".example/", "https://" + "a" * 63 + ".example/"),
    ],
)
def test_hosts_are_written_in_one_way(text: str, whole: str | None) -> None:
    if whole is None:
        with pytest.raises(InvalidUrl, match="internationalised"):
            parse(text, allow_http=True)
    else:
        url = parse(text, allow_http=True)
        assert str(url) == whole
        assert "[" not in url.host


@pytest.mark.parametrize(
    "target",
    [
        "/x?sig=a%2Fb%3D",
        "/x?sig=a%2fb%3d",
        "/%2e%2e/../a//b/./;c",
        "/?a[]=1&b={}|^`~!$'()*,",
        "/a@b:c?d@e:f",
        "/x?u=https://user:pass@other.example/?q",
        "/?",
        "//",
        "/x?%",
        "/%zz",
    ],
)
def test_path_and_query_stay_as_they_are_byte_for_byte(target: str) -> None:
    url = parse(f"https://example.com{target}", allow_http=False)
    assert url.target == target.encode()
    assert str(url) == f"https://example.com{target}"


@pytest.mark.parametrize(("text", "advice"), URLS.items())
def test_what_parsers_could_disagree_about_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(InvalidUrl, match=re.escape(advice)) as refused:
        parse(text, allow_http=False)
    assert "s3cret" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_http_needs_to_be_allowed() -> None:
    assert parse("http://example.com/", allow_http=True).port == 80
    with pytest.raises(InvalidUrl, match="use https"):
        parse("http://example.com/", allow_http=False)


def test_ports_can_be_restricted_and_the_default_port_counts() -> None:
    ports = frozenset({443, 8443})
    assert parse("https://example.com/", allow_http=True, ports=ports).port == 443
    assert parse("https://example.com:8443/", allow_http=True, ports=ports).port == 8443
    for text in ("https://example.com:80/", "http://example.com/", "https://[2001:db8::1]:22/"):
        with pytest.raises(InvalidUrl, match="not allowed here; allowed: 443, 8443"):
            parse(text, allow_http=True, ports=ports)


def test_the_longest_url_is_2048_characters() -> None:
    text = "https://example.com/" + "a" * 2028
    assert len(str(parse(text, allow_http=False))) == 2048


targets = st.text(string.ascii_letters + string.digits + "/?&=%+-._~:@!$'()*,;[]{}|^`", max_size=20).map("/{}".format)
hosts = st.one_of(
    st.lists(st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=6), min_size=1, max_size=3).map(
        lambda labels: ".".join([*labels, "example"])
    ),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map("[{}]".format),
)


@given(st.sampled_from(["http", "https"]), hosts, st.none() | st.integers(1, 65535), targets)
def test_a_url_read_again_is_the_same(scheme: str, host: str, port: int | None, target: str) -> None:
    url = parse(f"{scheme}://{host}{'' if port is None else f':{port}'}{target}", allow_http=True)
    assert parse(str(url), allow_http=True) == url
    assert url.target == target.encode()
    assert str(url).endswith(target)


@settings(max_examples=300)
@given(st.text(max_size=30) | st.text("a1.:/[]@?#\\%x\u00e9\uff11\u3002 -_", max_size=20))
def test_any_text_is_read_or_refused(rest: str) -> None:
    try:
        url = parse(f"https://{rest}", allow_http=False)
    except InvalidUrl:
        return
    assert str(url).isascii()
    assert not set(str(url)) & set(" \\#\r\n\t\0")
    assert "@" not in url.authority
    assert parse(str(url), allow_http=False) == url
