from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.infra.cli.conftest import Run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_bill_of_a_month_is_told(forbear: Run) -> None:
    """Parts, sum, what a million deliveries cost, and from where on hosted services cost more."""
    result = forbear("cost", "--events-per-month", "5M", "--fan-out", "2")
    assert result.exit_code == 0, result.output
    for expected in ("10,000,000 deliveries", "API Gateway", "a million deliveries", "Svix", "us-east-1"):
        assert expected in result.stdout


def test_programs_get_a_document(ask: Callable[..., Any]) -> None:
    """The same in JSON; 5M, 5000k and 5_000_000 are the same number."""
    written = [ask("cost", "--events-per-month", events) for events in ("5M", "5000k", "5_000_000")]
    assert written[0] == written[1] == written[2]
    assert written[0]["events_per_month"] == 5e6
    assert written[0]["dollars"] > written[0]["dollars_with_free_tier"] > 0


def test_the_stack_is_the_one_of_the_file(ask: Callable[..., Any]) -> None:
    """Knobs come from forbear.toml, as for cdk deploy, and from the command line over it."""
    Path("forbear.toml").write_text('profile = "production"\n[functions.memory_mb]\nclaimer = 1024\n')
    assert ask("cost", "--events-per-month", "1M")["profile"] == "production"
    assert ask("cost", "--events-per-month", "1M", "--profile", "small")["profile"] == "small"
    dear = ask("cost", "--events-per-month", "1M", "-c", "functions.memory_mb.claimer=2048")
    assert dear["parts"]["Lambda"] > 1.8 * ask("cost", "--events-per-month", "1M")["parts"]["Lambda"]


def test_a_picture_is_drawn(forbear: Run) -> None:
    """Cost over volume, in a file."""
    result = forbear("cost", "--events-per-month", "1M", "--plot", "cost.svg")
    assert result.exit_code == 0, result.output
    assert "Hookdeck" in Path("cost.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--events-per-month"),
        (("--events-per-month", "many"), "250k"),
        (("--events-per-month", "-1"), "-1"),
        (("--events-per-month", "1e400"), "1e400"),
        (("--events-per-month", "1M", "--payload", "2000000"), "--payload"),
        (("--events-per-month", "1M", "--fan-out", "nan"), "--fan-out"),
        (("--events-per-month", "1M", "--hours", "0"), "--hours"),
        (("--events-per-month", "1M", "--batch", "501"), "--batch"),
        (("--events-per-month", "1M", "--region", "mars-1"), "mars-1"),
        (("--events-per-month", "1M", "--profile", "large"), "profile"),
        (("--events-per-month", "1M", "-c", "database"), "KNOB=VALUE"),
        (("--events-per-month", "1M", "-c", "database.cheap=1"), "database.cheap"),
        (("--events-per-month", "1M", "--plot", "cost.txt"), ".svg"),
        (("--events-per-month", "1M", "--plot", "nowhere/cost.svg"), "nowhere"),
    ],
)
def test_bad_input_is_a_usage_error(forbear: Run, arguments: tuple[str, ...], told: str) -> None:
    """It says what is wrong, and nothing is reckoned."""
    result = forbear("cost", *arguments)
    assert result.exit_code != 0
    assert told in result.stderr
    assert not result.stdout
