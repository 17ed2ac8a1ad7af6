import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.ids import InvalidId, Prefix, decode, encode

# From the specification's list of valid ids, with our prefixes.
SPECIFIED = [
    ("00000000000000000000000000", "00000000-0000-0000-0000-000000000000"),
    ("00000000000000000000000001", "00000000-0000-0000-0000-000000000001"),
    ("0000000000000000000000000a", "00000000-0000-0000-0000-00000000000a"),
    ("0000000000000000000000000g", "00000000-0000-0000-0000-000000000010"),
    ("00000000000000000000000010", "00000000-0000-0000-0000-000000000020"),
    ("7zzzzzzzzzzzzzzzzzzzzzzzzz", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ("0123456789abcdefghjkmnpqrs", "0110c853-1d09-52d8-d73e-1194e95b5f19"),
    ("01h455vb4pex5vsknk084sn02q", "01890a5d-ac96-774b-bcce-b302099a8057"),
]


@pytest.mark.parametrize(("suffix", "uuid"), SPECIFIED)
@pytest.mark.parametrize("prefix", Prefix)
def test_ids_are_written_and_read_as_the_specification_says(prefix: Prefix, suffix: str, uuid: str) -> None:
    assert encode(prefix, UUID(uuid)) == f"{prefix.value}_{suffix}"
    assert decode(prefix, f"{prefix.value}_{suffix}") == UUID(uuid)


@given(st.uuids(), st.sampled_from(Prefix))
def test_every_uuid_survives_the_way_there_and_back(value: UUID, prefix: Prefix) -> None:
    text = encode(prefix, value)
    assert re.fullmatch(rf"{prefix.value}_[0-7][0-9a-hjkmnp-tv-z]{{25}}", text)
    assert decode(prefix, text) == value


@given(st.uuids(), st.uuids())
def test_ids_sort_as_their_uuids_do(one: UUID, other: UUID) -> None:
    assert (encode(Prefix.EVENT, one) < encode(Prefix.EVENT, other)) == (one < other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt",
        "evt_",
        "_01h455vb4pex5vsknk084sn02q",
        "01h455vb4pex5vsknk084sn02q",
        "ep_01h455vb4pex5vsknk084sn02q",
        "EVT_01h455vb4pex5vsknk084sn02q",
        "evt_evt_01h455vb4pex5vsknk084sn02q",
        "evt_01H455VB4PEX5VSKNK084SN02Q",
        "evt_81h455vb4pex5vsknk084sn02q",
        "evt_01h455vb4pex5vsknk084sn02",
        "evt_01h455vb4pex5vsknk084sn02qq",
        "evt_01h455vb4pex5vsknk084sn02u",
        "evt_o1h455vb4pex5vsknk084sn02q",
        "evt_01h455vb4pex5vsknk084sn02q\n",
        "evt_01h455vb4pex5vsknk084sn02q ",
        "evt_0\uff11h455vb4pex5vsknk084sn02q",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "evt_" + "0" * 10_000,
    ],
)
def test_what_is_no_event_id_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(InvalidId, match=r"expected an id of the form evt_.* got") as refused:
        decode(Prefix.EVENT, text)
    assert len(str(refused.value)) < 300


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = decode(Prefix.DELIVERY, text)
    except InvalidId:
        return
    assert encode(Prefix.DELIVERY, value) == text
