"""`forbear schedule`: what a schedule means, in a table, as JSON and as a picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from forbear.policy.model import Policy
from forbear.policy.plan import MOST_ROWS, plan
from forbear.policy.presets import presets
from infra.cli.main import app
from infra.cli.planning import document, picture
from tests.functions.policy.builders import SCHEDULES
from tests.infra.cli.processes import finish, start

REPOST_S = [0, 30, 120, 390, 1_200, 3_630, 10_920, 21_720, 32_520, 43_320, 54_120, 64_920, 75_720, 86_520]
OWN_PRESETS = """
[ours]
summary = "Twice, a minute apart."
source = "us"
schedule = { kind = "ladder", gaps_s = [60, 60] }
"""


def schedule(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["schedule", *arguments], input=stdin)


def shown(*arguments: str, stdin: str | bytes | None = None) -> Any:
    """The one document that the command prints."""
    result = schedule(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    [line] = result.stdout.splitlines()
    return json.loads(line)


def elapsed(plan: Any) -> list[float]:
    return [row["elapsed_s"] for row in plan["attempts"]]


def refused(*arguments: str, stdin: str | bytes | None = None) -> str:
    """The one line that the command is refused with."""
    result = schedule(*arguments, stdin=stdin)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    [line] = result.stderr.splitlines()
    return line


# Presets and files


def test_a_preset_s_attempts_are_a_document_of_plain_numbers() -> None:
    repost = shown("repost")
    assert elapsed(repost) == REPOST_S
    assert repost["attempts"][:2] == [
        {"attempt": 1, "gap_s": 0, "elapsed_s": 0, "earliest_s": 0, "expected_s": 0, "latest_s": 0},
        {"attempt": 2, "gap_s": 30, "elapsed_s": 30, "earliest_s": 15, "expected_s": 22.5, "latest_s": 30},
    ]
    assert repost["gives_up_s"] == {"on_paper": 86_520, "expected": 64_890}
    assert repost["attempts_in_all"] == {"on_paper": 14, "expected": 14}
    assert (repost["preset"], repost["more"], repost["changed"]) == ("repost", 0, [])
    assert '"elapsed_s":30,' in schedule("repost", "--json").stdout


@pytest.mark.parametrize("name", presets())
def test_every_preset_can_be_shown(name: str) -> None:
    preset = presets()[name]
    document = shown(name)
    assert (document["summary"], document["source"]) == (preset.summary, preset.source)
    assert document["from_default"] == list(preset.from_default)
    assert schedule(name).exit_code == 0


def test_a_table_is_for_people() -> None:
    result = schedule("repost")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "on paper      14 attempts, the last after 1d2m" in lines
    assert "expected      14 attempts, the last after 18h1m30s" in lines
    assert f"source        {presets()['repost'].source}" in lines
    assert any(line.startswith("from default  schedule.jitter, verdicts") for line in lines)
    assert "7\t2h1m30s\t3h2m\t1h31m\t2h16m30s\t3h2m" in lines


def test_without_a_name_it_is_the_default() -> None:
    assert shown() == shown("default")


def test_several_are_shown_one_after_the_other() -> None:
    result = schedule("svix", "repost", "--json")
    assert [json.loads(line)["preset"] for line in result.stdout.splitlines()] == ["svix", "repost"]


def test_what_is_left_out_is_counted() -> None:
    result = schedule("naive")
    assert result.stdout.count("\t") == 50 * 5
    assert result.stderr == "999,951 more attempts are left out: --limit shows up to 10,000\n"
    assert shown("naive", "--limit", "3")["more"] == 999_998
    assert len(shown("naive", "--limit", str(MOST_ROWS))["attempts"]) == MOST_ROWS


def test_own_presets_are_named_like_the_built_in_ones(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(OWN_PRESETS)
    assert elapsed(shown("ours", "--presets", str(file))) == [0, 60, 120]
    assert refused("ours", "--presets", str(tmp_path / "none")).startswith("error: --presets: ")


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "ladder", "gaps_s": [5, 10]},
        {"schedule": {"kind": "ladder", "gaps_s": [5, 10]}, "timeout_s": 3},
    ],
)
def test_a_file_holds_a_policy_or_only_its_schedule(tmp_path: Path, document: dict[str, Any]) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(document))
    planned = shown(str(file))
    assert elapsed(planned) == [0, 5, 15]
    assert planned["preset"] == str(file)
    assert ("timeout_s" in planned["from_default"]) == ("timeout_s" not in document)
    assert planned["from_default"][:2] == ["schedule.jitter", "verdicts"]
    assert elapsed(shown("-", stdin=json.dumps(document))) == [0, 5, 15]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "standard input is not JSON: "),
        (b"\xff", "standard input is not JSON: "),
        ("[" * 100_000, "standard input is not JSON: "),
        ("[]", "standard input holds no policy: "),
        ('{"schedule": {"gaps_s": [1]}}', "standard input holds no policy: schedule: "),
        ('{"kind": "ladder", "gaps_s": [-1]}', "standard input holds no policy: schedule.gaps_s.0: "),
        ('{"kind": "two_phase", "fast_s": [], "slow_s": 1}', "so the schedule would never end: set at least one"),
        ('{"kind": "ladder", "gaps_s": [NaN]}', "standard input holds no policy: schedule.gaps_s.0: "),
        ('{"breakers": null}', "standard input holds no policy: breakers: "),
    ],
)
def test_what_holds_no_policy_is_refused_in_a_line(content: str | bytes, message: str) -> None:
    assert message in refused("-", stdin=content)


@settings(max_examples=60)
@given(st.binary(max_size=60) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_nothing_that_is_read_escapes_as_a_crash(content: str | bytes) -> None:
    assert schedule("-", stdin=content).exit_code in {0, 2}


def test_what_is_neither_a_preset_nor_a_file_is_refused_with_the_presets(tmp_path: Path) -> None:
    assert refused("respost").startswith(
        "error: 'respost' is neither a preset nor a file: name one of default, dropless, "
    )
    assert "cannot be read" in refused(str(tmp_path))


# Changed and own schedules


def test_a_preset_can_be_changed_on_the_command_line() -> None:
    changed = shown("repost", "--cap", "1h", "--retries", "6", "--jitter", "proportional:0.1")
    assert elapsed(changed) == [0, 30, 120, 390, 1_200, 3_630, 7_230]
    assert changed["changed"] == ["cap_s", "retries", "jitter"]
    assert changed["schedule"]["jitter"] == {"kind": "proportional", "ratio": 0.1}
    assert "schedule.jitter" in shown("repost")["from_default"]
    assert "schedule.jitter" not in changed["from_default"]
    assert elapsed(shown("svix", "--window", "1h")) == [0, 5, 305, 2_105]


def test_a_schedule_of_one_s_own_is_exponential() -> None:
    own = shown("--first", "0.5s", "--multiplier", "2", "--retries", "3")
    assert elapsed(own) == [0, 0.5, 1.5, 3.5]
    assert own["schedule"]["kind"] == "exponential"
    assert own["from_default"][:2] == ["schedule.jitter", "verdicts"]
    assert "schedule.jitter" not in shown("repost", "--jitter", "none")["from_default"]


def test_the_fewest_attempts_follow_from_the_time_to_give_up() -> None:
    derived = shown("--give-up", "24h", "--cap", "3h", "--first", "30s", "--multiplier", "3")
    assert elapsed(derived) == REPOST_S
    assert derived["attempts_in_all"]["on_paper"] == 14
    assert derived["schedule"]["retries"] == 13
    assert len(shown("repost", "--give-up", "12h")["attempts"]) == 10


def test_what_was_derived_is_there_to_be_pasted() -> None:
    """The line is a policy as endpoints take it, and has the schedule that was shown."""
    result = schedule("--give-up", "24h", "--cap", "3h", "--first", "30s", "--multiplier", "3")
    assert "on paper      14 attempts, the last after 1d2m" in result.stdout
    [pasted] = [line.removeprefix("policy").strip() for line in result.stdout.splitlines() if line.startswith("policy")]
    assert plan(Policy.model_validate_json(pasted)).on_paper.attempts == 14
    assert elapsed(shown("-", stdin=pasted)) == REPOST_S


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--first", "30s"], "a schedule of one's own needs --multiplier: add it, or name a preset"),
        (["--give-up", "24h"], "a schedule of one's own needs --first and --multiplier: add it, or name a preset"),
        (["--first", "30", "--multiplier", "2"], "--first: '30' is no duration"),
        (["--first", "30s", "--multiplier", "0.5", "--retries", "1"], "--multiplier: Input should be greater"),
        (["--first", "30s", "--multiplier", "nan", "--retries", "1"], "--multiplier: Input should be a finite number"),
        (["--first", "0s", "--multiplier", "2", "--retries", "1"], "--first: Input should be greater"),
        (["--first", "30s", "--multiplier", "2", "--cap", "1s", "--retries", "1"], "cap_s (1) is below base_s (30)"),
        (["--first", "30s", "--multiplier", "2"], "the schedule would never end: set at least one"),
        (["svix", "--cap", "1h"], "--cap: a schedule of the kind ladder has no cap_s: leave it out"),
        (["svix", "--give-up", "1h"], "--give-up works out the retries of exponential schedules only"),
        (["repost", "--give-up", "1h", "--retries", "3"], "leave out --retries and --window"),
        (["naive", "--give-up", "348d"], "--give-up: even 1000000 retries end after 30000000 seconds"),
        (["repost", "--give-up", "0s"], "--give-up: the time to give up is 0 seconds: it must be above 0"),
        (["repost", "--jitter", "wild"], "--jitter: Input tag 'wild'"),
        (["repost", "--jitter", "proportional"], "--jitter: proportional: ratio: Field required"),
        (["repost", "--jitter", "proportional:a"], "--jitter: 'a' is no number: write proportional:0.2 for 20 %"),
        (["repost", "--retries", "1000001"], "--retries: Input should be less"),
        (["repost", "--plot", "x.gif"], "--plot: 'x.gif' ends neither in .svg nor in .png: choose one of the two"),
        (["repost", "--plot", "/nowhere/x.svg"], "--plot: "),
    ],
)
def test_what_makes_no_schedule_is_refused_in_a_line(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)
    assert message in json.loads(refused(*arguments, "--json"))["detail"]


@pytest.mark.parametrize("limit", ["0", "10001", "many"])
def test_a_limit_is_from_one_row_to_the_most(limit: str) -> None:
    assert schedule("repost", "--limit", limit).exit_code == 2


@settings(max_examples=60)
@given(SCHEDULES)
def test_any_schedule_s_document_has_its_rows_and_its_picture_their_points(schedule: Any) -> None:
    preset = presets()["default"]
    planned = plan(schedule)
    shown = document(preset, planned, 5)
    assert [row["elapsed_s"] for row in shown["attempts"]] == pytest.approx(
        [row.elapsed_s for row in planned.rows[:5]], abs=1e-6
    )
    assert json.loads(json.dumps(shown)) == shown
    [panel] = picture([("a", planned)]).panels
    [series] = panel.series
    assert list(series.x) == [row.elapsed_s for row in planned.rows]
    assert (series.x[-1], series.y[-1]) == (planned.on_paper.elapsed_s, planned.on_paper.attempts)


# Pictures


def test_several_schedules_are_drawn_into_one_picture(tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    result = schedule("default", "repost", "naive", "--plot", str(file))
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == f"drawn into {file}"
    document = ET.parse(file)  # noqa: S314 - our own
    texts = ["".join(element.itertext()) for element in document.iter("{http://www.w3.org/2000/svg}text")]
    assert {"default", "repost", "naive", "attempts", "1 min", "1 h", "1 d"} <= set(texts)
    assert file.stat().st_size < 100_000


def test_a_picture_may_be_a_png(tmp_path: Path) -> None:
    assert schedule("repost", "--plot", str(tmp_path / "x.png")).exit_code == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_it_is_drawn_on_a_terminal_and_elsewhere_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert "attempts\n" not in schedule("repost").stdout
    drawing = schedule("repost", "--draw").stdout.partition("Attempts of a delivery that keeps failing\n")[2]
    assert drawing.startswith("attempts\n")
    assert drawing.endswith("a repost\n")
    assert max(map(len, drawing.splitlines())) <= 70
    assert schedule("repost", "--draw", "--json").stdout.count("\n") == 1


def test_a_million_attempts_are_drawn_by_a_few_points() -> None:
    [panel] = picture([("naive", plan(presets()["naive"].policy))]).panels
    [series] = panel.series
    assert len(series.x) < 200
    assert (series.x[-1], series.y[-1]) == (30_000_000, 1_000_001)
    assert panel.y.log


def test_a_file_s_name_cannot_reach_the_terminal_as_a_command(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b]0;b"
    file.write_text('{"kind": "ladder", "gaps_s": [1]}')
    assert "\x1b" not in schedule(str(file), "--draw").output
    assert schedule(str(file), "--plot", str(tmp_path / "x.svg")).exit_code == 0


def test_help_and_tables_do_without_what_they_do_not_need() -> None:
    for arguments, heavy in (
        (("--help",), ("pydantic", "plotille", "matplotlib", "numpy", "rich")),
        (("schedule", "--help"), ("forbear.policy", "plotille", "matplotlib", "numpy", "rich")),
        (("schedule", "naive"), ("plotille", "matplotlib", "numpy", "rich", "httpx")),
    ):
        script = (
            "import sys\nfrom infra.cli.main import run\nsys.argv[1:] = " + repr(arguments) + "\n"
            f"try:\n    run()\nfinally:\n    print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
        )
        code, _, said = finish(start(script=script))
        assert (code, said.splitlines()[-1]) == (0, "[]")
