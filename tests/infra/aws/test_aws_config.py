"""What can be chosen about the stack, and what is said to a wrong choice."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.config import InvalidConfig, JwtConfig, StackConfig
from infra.knob import as_markdown, knobs
from tests.infra.aws.conftest import ROOT

NOWHERE = Path("/nonexistent")
KEYS = [one.key for one in knobs(StackConfig)]


def read(context: Mapping[str, Any] | None = None, folder: Path = NOWHERE) -> StackConfig:
    return StackConfig.read(context or {}, folder)


def complaint(context: Mapping[str, Any], folder: Path = NOWHERE) -> str:
    with pytest.raises(InvalidConfig) as caught:
        read(context, folder)
    return str(caught.value)


def test_nothing_chosen_is_small() -> None:
    chosen = read()
    assert chosen == StackConfig() == read({"profile": "small"})
    assert (chosen.database.min_acu, chosen.database.readers, chosen.network.nat) == (0, 0, "instance")


def test_production_differs_where_its_knobs_say_so() -> None:
    chosen = read({"profile": "production"})
    assert (chosen.database.min_acu, chosen.database.readers, chosen.network.nat) == (0.5, 1, "gateways")
    assert chosen.database.deletion_protection
    assert chosen.database.backup_days > read().database.backup_days


def test_the_context_is_stronger_than_the_file_and_the_file_than_the_profile(tmp_path: Path) -> None:
    (tmp_path / "forbear.toml").write_text(
        'profile = "production"\n[database]\nmax_acu = 32\nbackup_days = 21\n[network]\nreceiver_ports = [443, 8443]\n'
    )
    chosen = read({"config": "forbear.toml", "database.max_acu": "64"}, tmp_path)
    assert (chosen.database.max_acu, chosen.database.backup_days, chosen.database.readers) == (64, 21, 1)
    assert chosen.network.receiver_ports == (443, 8443)
    assert read({"config": "forbear.toml", "profile": "small"}, tmp_path).database.readers == 0


def test_the_command_lines_strings_become_numbers_lists_and_groups() -> None:
    chosen = read(
        {
            "network.receiver_ports": "443, 8443",
            "network.flow_logs": "true",
            "functions.reserved_concurrency.ingest": "50",
            "functions.log_retention_days": "7",
            "delivery.allow_networks": "10.1.0.0/16,fd00::/8",
            "api.auth.issuer": "https://issuer.example.com",
            "api.auth.audiences": "forbear,other",
        }
    )
    assert (chosen.network.receiver_ports, chosen.network.flow_logs) == ((443, 8443), True)
    assert chosen.functions.reserved_concurrency == {"ingest": 50}
    assert chosen.functions.log_retention_days == 7
    assert [str(network) for network in chosen.delivery.allow_networks] == ["10.1.0.0/16", "fd00::/8"]
    assert chosen.api.auth == JwtConfig(issuer="https://issuer.example.com", audiences=("forbear", "other"))


def test_a_key_is_named_by_its_arn_wherever_aws_is() -> None:
    for arn in (
        "arn:aws:kms:eu-central-1:123456789012:key/0a1b2c3d-0000-1111-2222-333344445555",
        "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/mrk-0a1b2c3d00001111222233334444",
    ):
        assert read({"database.secrets_key": arn}).database.secrets_key == arn


def test_a_group_may_come_as_a_table_and_single_knobs_beside_it() -> None:
    chosen = read({"database": {"min_acu": 1}, "database.max_acu": "8"})
    assert (chosen.database.min_acu, chosen.database.max_acu) == (1, 8)


def test_the_cdks_own_context_is_none_of_our_business() -> None:
    assert read({"aws:cdk:bundling-stacks": [], "@aws-cdk/core:checkSecretUsage": True}) == StackConfig()


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"profile": "large"}, "profile: Input should be 'small' or 'production'. It takes: Which defaults"),
        ({"databse.max_acu": "8"}, "databse: there is no such knob. The stack has: profile, stack_name, network, data"),
        ({"database.maxAcu": "8"}, "database.maxAcu: there is no such knob. database has: min_acu, max_acu"),
        ({"database.max-acu": "8"}, "database.max-acu: there is no such knob."),
        ({"database": "8"}, "database: this is a group of knobs. It takes database.min_acu and the like."),
        ({"database.max_acu": "eight"}, "database.max_acu: Input should be a valid number"),
        ({"database.max_acu": "8.3"}, "It takes: Most capacity"),
        ({"database.max_acu": "512"}, "less than or equal to 256"),
        ({"database.auto_pause_s": "60"}, "greater than or equal to 300"),
        (
            {"network.receiver_ports": "443,70000"},
            "network.receiver_ports: Input should be less than or equal to 65535",
        ),
        ({"network.cidr": "10.0.0.0/8"}, "network.cidr: 10.0.0.0/8 is not between /16 and /24."),
        ({"network.cidr": "10.0.0.1/16"}, "network.cidr: 10.0.0.1/16 has host bits set"),
        ({"network.cidr": "fd00::/64"}, "network.cidr: "),
        ({"network.cidr": 16}, "network.cidr: a network is written like 10.0.0.0/16. It takes: Address range"),
        ({"stack_name": "-x"}, "stack_name: String should match pattern"),
        ({"functions.reserved_concurrency.sender": "5"}, "functions.reserved_concurrency.sender: Input should be 'ing"),
        ({"functions.log_retention_days": "31"}, "functions.log_retention_days: Input should be 1, 3, 5"),
        ({"database.secrets_key": "alias/forbear"}, "database.secrets_key: String should match pattern"),
        ({"database.secrets_key": "alias/forbear"}, "It takes: ARN of the KMS key that encrypts the secrets"),
        ({"database.secrets_key": "arn:aws:kms:eu-central-1:1:key/x"}, "database.secrets_key: String should match"),
        (
            {"database.secrets_key": "arn:aws:kms:eu-central-1:123456789012:alias/forbear"},
            "database.secrets_key: String should match pattern",
        ),
        ({"api.keys": "perhaps"}, "api.keys: Input should be a valid boolean"),
        ({"api.auth": "jwt"}, "api.auth: Input should be 'iam'. It takes: How requests are authenticated"),
    ],
)
def test_a_wrong_value_is_named_with_what_the_knob_takes(context: dict[str, Any], says: str) -> None:
    assert says in complaint(context)


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"api.auth.issuer": "https://issuer.example.com"}, "api.auth.audiences: Field required."),
        ({"database.auto_pause_s": "600", "database.min_acu": "1"}, "database.auto_pause_s: a database with min_acu"),
        ({"database.readers": "1"}, "database.readers: a database that may pause"),
        ({"profile": "production", "database.min_acu": "0"}, "Set database.min_acu = 0.5 or more, or readers = 0."),
        ({"database.min_acu": "8", "database.max_acu": "4"}, "database.min_acu: 8 is above database.max_acu = 4."),
        ({"network.nat_gateways": "1"}, "network.nat_gateways: there are none with network.nat = instance."),
        ({"network.receiver_ports": "8443"}, "network.receiver_ports: 443 is missing"),
        ({"delivery.allow_http": "true"}, "delivery.allow_http: no port for it is open."),
        ({"api.domain_name": "hooks.example.com"}, "api.domain_name: it takes api.certificate_arn too"),
        ({"functions.reserved_concurrency.claimer": "2"}, "is below delivery.max_claimers = 4"),
        ({"delivery.presets": "none.toml"}, "delivery.presets: /nonexistent/none.toml cannot be read"),
        ({"database.ca_file": "none.pem"}, "database.ca_file: /nonexistent/none.pem holds no certificates"),
        ({"config": "none.toml"}, "config: /nonexistent/none.toml cannot be read"),
    ],
)
def test_what_contradicts_itself_or_is_missing_is_told_in_one_line(context: dict[str, Any], says: str) -> None:
    told = complaint(context)
    assert says in told
    assert "\n" not in told


def test_a_file_that_is_no_toml_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "forbear.toml").write_text("profile production")
    assert "forbear.toml is no TOML" in complaint({"config": "forbear.toml"}, tmp_path)
    (tmp_path / "forbear.toml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in complaint({"config": "forbear.toml"}, tmp_path)


def test_files_are_found_beside_the_app_wherever_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes((ROOT / "functions" / "forbear" / "rds-ca.pem").read_bytes())
    assert read({"database.ca_file": "ca.pem"}, tmp_path).database.ca_file == tmp_path / "ca.pem"


def test_own_presets_are_read_before_they_are_deployed(tmp_path: Path) -> None:
    (tmp_path / "presets.toml").write_text("[Gentle]\n")
    assert "delivery.presets: " in complaint({"delivery.presets": "presets.toml"}, tmp_path)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
SOME_KEY = st.sampled_from([*KEYS, "config", "network", "database", "api.auth"]) | WORDS


@settings(max_examples=100)
@given(st.dictionaries(SOME_KEY | SOME_KEY.map(lambda key: f"{key}.x"), ANYTHING, max_size=3))
def test_bad_input_raises_nothing_but_the_documented_error(context: dict[str, Any]) -> None:
    with suppress(InvalidConfig):
        read(context)


def test_every_knob_says_what_it_does_and_has_a_default_in_each_profile() -> None:
    assert len(KEYS) == len(set(KEYS)) > 30
    for one in knobs(StackConfig):
        assert one.about, one.key
        assert one.about.endswith("."), one.key


def test_the_profiles_defaults_are_valid_and_agree() -> None:
    for profile in ("small", "production"):
        chosen = read({"profile": profile})
        for one in knobs(StackConfig):
            value: Any = chosen
            for part in one.key.split("."):
                value = getattr(value, part)
            assert value == getattr(one, profile), one.key


def test_the_table_has_a_row_for_each_knob() -> None:
    table = as_markdown(StackConfig).splitlines()
    assert [line.split("`")[1] for line in table[2:]] == KEYS
    assert {line.count("|") for line in table} == {7}


def test_the_page_lists_every_knob_as_it_is() -> None:
    """Renewed by `python -m infra.config`."""
    assert as_markdown(StackConfig) in (ROOT / "docs" / "aws.md").read_text(encoding="utf-8")


def test_what_was_chosen_stands_in_a_file_that_every_command_reads(tmp_path: Path) -> None:
    """A command without `-c profile=production` would take production's network and reader away."""
    (tmp_path / "forbear.toml").write_bytes(b'\xef\xbb\xbfprofile = "production"\n[database]\nmax_acu = 9\n')
    (tmp_path / "other.toml").write_text('stack_name = "Other"')
    assert read({}, tmp_path).network.nat == "gateways"
    assert read({"database.max_acu": "10"}, tmp_path).database.max_acu == 10
    assert read({"config": "other.toml"}, tmp_path).profile == "small"


@pytest.mark.parametrize("key", ["database/max_acu", "database:max_acu", "database.max_acu@", "profile$"])
def test_a_slip_in_a_key_is_no_key_of_the_cdks(key: str) -> None:
    assert "there is no such knob" in complaint({key: "9"})


@pytest.mark.parametrize(
    "key", ["acknowledged-issue-numbers", "cli-telemetry", "@aws-cdk/core:newStyleStackSynthesis", "aws:cdk:bundling"]
)
def test_the_cdks_own_keys_are_left_alone(key: str) -> None:
    assert read({key: [34892]}) == StackConfig()


def test_a_group_and_its_parts_do_not_go_together() -> None:
    """Above all where it is about who may come in."""
    for context in (
        {"api.auth": "iam", "api.auth.issuer": "https://x", "api.auth.audiences": "a"},
        {"api.auth.issuer": "https://x", "api.auth.audiences": "a", "api.auth": "iam"},
    ):
        assert "auth: it is given as a whole and by its parts" in complaint(context)


def test_truth_is_no_number() -> None:
    assert complaint({"database": {"readers": True}}).startswith("database.readers: it is true or false")


@pytest.mark.parametrize("cidr", ["8.8.0.0/16", "127.0.0.0/16", "169.254.0.0/16"])
def test_the_network_is_a_private_one(cidr: str) -> None:
    assert "is no private network" in complaint({"network.cidr": cidr})


def test_authorities_are_certificates(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    assert "ca.pem holds no certificates" in complaint({"database.ca_file": "ca.pem"}, tmp_path)
