"""The presets: each one's table against its source's, to the second, and files of one's own.

The tables are written out here as the sources have them, most as seconds after the first attempt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forbear.policy.model import Adaptive, AutoDisable, BreakerRule, Limits, Policy, RetryAfterRule, Verdicts
from forbear.policy.presets import InvalidPresets, Preset, load, name_of, presets, with_own
from forbear.policy.schedule import (
    AdditiveJitter,
    EqualJitter,
    Exponential,
    FullJitter,
    NoJitter,
    ProportionalJitter,
    gap_s,
)
from forbear.policy.verdict import Answer, Verdict, classify

NAMES = (
    "default", "dropless", "guide", "guide-latency", "guide-batch", "repost", "ladder-13h", "hook0",
    "standard-webhooks", "svix", "outpost", "square", "sns", "naive",
)  # fmt: skip
STATUSES = (200, 204, 301, 400, 404, 408, 410, 425, 429, 500, 503)


def gaps(name: str, most: int = 100) -> list[float]:
    """The gaps before a preset's retries, the first hundred at most."""
    found = []
    for n in range(1, most + 1):
        gap = gap_s(presets()[name].policy.schedule, n)
        if gap is None:
            break
        found.append(gap)
    return found


def elapsed(name: str) -> list[float]:
    """When each attempt begins before jitter, in seconds after the first one."""
    return list(accumulate(gaps(name), initial=0))


def clock(text: str) -> int:
    """Seconds of a time as published tables have it: `75:35:05`."""
    hours, minutes, seconds = map(int, text.split(":"))
    return hours * 3_600 + minutes * 60 + seconds


def verdicts(name: str) -> dict[int, Verdict]:
    """What a preset makes of the statuses that senders differ about."""
    rule = presets()[name].policy.verdicts
    return {status: classify(rule, Answer(status, None, ())) for status in STATUSES}


def test_there_is_every_preset_and_the_default_comes_first() -> None:
    assert tuple(presets()) == NAMES
    for name, preset in presets().items():
        assert preset.name == name
        assert preset.summary.endswith(".")
        assert preset.source


def test_default_is_the_model_s_own_policy_and_all_of_it_is_meant() -> None:
    assert presets()["default"].policy == Policy()
    assert presets()["default"].from_default == ()


def test_dropless() -> None:
    """Dropless (github.com/r4nd0mENRYU/dropless): RetryPolicy::default is 2 s, 1 h, 16 attempts; doubling, capped."""
    policy = presets()["dropless"].policy
    assert gaps("dropless") == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 3_600, 3_600, 3_600, 3_600]
    assert len(elapsed("dropless")) == 16
    assert elapsed("dropless")[-1] == clock("05:08:14")
    assert policy.schedule.jitter == FullJitter()
    assert {status for status, verdict in verdicts("dropless").items() if verdict is Verdict.RETRY} == {
        301, 400, 404, 408, 410, 425, 429, 500, 503,
    }  # fmt: skip
    assert policy.breaker == BreakerRule(
        failures=5, cooldown_s=30, cooldown_multiplier=1, cooldown_cap_s=30, slow_start=False
    )


@pytest.mark.parametrize(
    ("name", "base_s", "multiplier", "total_s"),
    [("guide", 1, 2, 32_895), ("guide-latency", 0.25, 1.5, 1_662.128), ("guide-batch", 5, 2, 41_115)],
)
def test_guide(name: str, base_s: float, multiplier: float, total_s: float) -> None:
    """The guide's formula: min(1 h, base * multiplier ** attempt), attempts from 0 to 19, full jitter."""
    policy = presets()[name].policy
    assert gaps(name) == pytest.approx([min(3_600, base_s * multiplier**attempt) for attempt in range(20)])
    assert elapsed(name)[-1] == pytest.approx(total_s, abs=0.001)
    assert policy.schedule.jitter == FullJitter()
    assert policy.retry_after == RetryAfterRule(mode="exact", min_s=1, cap_s=3_600, fractions=True)
    assert policy.breaker is not None
    opened_by = policy.breaker.model_dump(include={"failures", "volume", "failing_s", "dead_letter"})
    assert opened_by == {"failures": None, "volume": None, "failing_s": 20 * 60, "dead_letter": False}
    assert verdicts(name) == {
        200: Verdict.SUCCESS, 204: Verdict.SUCCESS, 301: Verdict.PERMANENT, 400: Verdict.PERMANENT,
        404: Verdict.PERMANENT, 408: Verdict.RETRY, 410: Verdict.PERMANENT, 425: Verdict.PERMANENT,
        429: Verdict.RETRY, 500: Verdict.RETRY, 503: Verdict.RETRY,
    }  # fmt: skip


def test_the_guide_s_variants_differ_in_their_gaps_only() -> None:
    guide, *variants = (presets()[name].policy for name in NAMES if name.startswith("guide"))
    for variant in variants:
        assert variant.model_copy(update={"schedule": guide.schedule}) == guide
    assert {presets()[name].from_default for name in NAMES if name.startswith("guide")} == {
        presets()["guide"].from_default
    }


def test_the_guide_s_options_are_changes_of_one_field() -> None:
    """A few attempts for a 404, and dead letters while the breaker is open."""
    text = """
    [mine]
    summary = "The guide with its options."
    source = "us"
    verdicts = { retry = ["408", "429", "5xx"], limited = ["404"], permanent = ["3xx", "4xx"], gone = [] }
    breaker = { failures = "null", failing_s = 1200, dead_letter = true }
    """
    mine = load(text)["mine"].policy
    assert classify(mine.verdicts, Answer(404, None, ())) is Verdict.LIMITED
    assert mine.breaker is not None
    assert mine.breaker.dead_letter


def test_repost() -> None:
    """Repost's table: 0, 30 s, 2 min, 6.5 min, 20 min, about 1 h, 3 h, 6 h, … about 24 h; 14 attempts."""
    policy = presets()["repost"].policy
    assert elapsed("repost") == [
        0, 30, 120, 390, 1_200, 3_630, 10_920, 21_720, 32_520, 43_320, 54_120, 64_920, 75_720, 86_520,
    ]  # fmt: skip
    assert policy.retry_after.mode == "floor"
    assert policy.budget is not None
    assert policy.budget.ratio == 0.1
    assert "schedule.jitter" in presets()["repost"].from_default


def test_ladder_13h() -> None:
    """The article has the shape (8 attempts, about 13 h, from 30 s on, ±20 %); the table is ours, to 12:42:30."""
    policy = presets()["ladder-13h"].policy
    assert gaps("ladder-13h") == [30, 2 * 60, 10 * 60, 30 * 60, 3_600, 3 * 3_600, 8 * 3_600]
    assert elapsed("ladder-13h") == [0, 30, 150, 750, 2_550, 6_150, 16_950, clock("12:42:30")]
    assert policy.schedule.jitter == ProportionalJitter(ratio=0.2)
    assert policy.retry_after == RetryAfterRule(mode="tiered", cap_s=4 * 3_600, ignore_above_s=24 * 3_600)
    assert policy.limits.concurrency == 100
    assert policy.adaptive == Adaptive(decrease=0.5, slow_s=3)
    assert policy.breaker == BreakerRule(
        failures=5, within_s=60, volume=20, volume_window_s=300, cooldown_s=300, cooldown_cap_s=1200, slow_start=True
    )
    assert policy.breaker.cooldown_multiplier > 1


def test_the_ladder_s_operator_may_raise_the_concurrency_to_500() -> None:
    ladder = presets()["ladder-13h"].policy
    assert Policy(**{**dict(ladder), "limits": Limits(concurrency=500)}).adaptive == ladder.adaptive


def test_hook0() -> None:
    """Hook0's documentation, "Webhook retry logic": the schedule, its jitter, 24 retries or 8 days, the timeouts."""
    policy = presets()["hook0"].policy
    assert gaps("hook0") == [3, 10, 180, 1_800, 3_600, 10_800, 18_000] + [36_000] * 17
    assert elapsed("hook0")[-1] == clock("179:33:13")
    assert (policy.schedule.retries, policy.schedule.window_s) == (24, 8 * 24 * 3_600)
    assert policy.schedule.jitter == AdditiveJitter(ratio=0.1, min_s=2, max_s=15 * 60)
    assert (policy.timeout_s, policy.connect_timeout_s) == (15, 5)
    assert (policy.retry_after.mode, policy.retry_after.cap_s) == ("floor", 10 * 3_600)
    assert {verdict for status, verdict in verdicts("hook0").items() if status >= 300} == {Verdict.RETRY}


def test_standard_webhooks() -> None:
    """The specification's example, its column "Time since start"; 410 disables, other non-2xx are failures."""
    since_start = "00:00:00 00:00:05 00:05:05 00:35:05 02:35:05 07:35:05 17:35:05 31:35:05 51:35:05 75:35:05"
    assert elapsed("standard-webhooks") == [clock(time) for time in since_start.split()]
    assert verdicts("standard-webhooks") == {
        status: Verdict.GONE if status == 410 else Verdict.RETRY if status >= 300 else Verdict.SUCCESS
        for status in STATUSES
    }
    assert "schedule.jitter" in presets()["standard-webhooks"].from_default


def test_svix() -> None:
    """docs.svix.com/retries: eight attempts, 15 s, all but 2xx failures, five days; its server's ±20 %."""
    policy = presets()["svix"].policy
    assert gaps("svix") == [5, 5 * 60, 30 * 60, 2 * 3_600, 5 * 3_600, 10 * 3_600, 10 * 3_600]
    assert elapsed("svix")[-1] == clock("27:35:05")
    assert policy.schedule.jitter == ProportionalJitter(ratio=0.2)
    assert policy.timeout_s == 15
    assert policy.disable == AutoDisable(after_s=5 * 24 * 3_600, spread_s=12 * 3_600)
    assert {verdict for status, verdict in verdicts("svix").items() if status >= 300} == {Verdict.RETRY}


def test_outpost() -> None:
    """Outpost's documentation: RETRY_INTERVAL_SECONDS 30, base 2, MAX_RETRY_LIMIT 10, 5 s; disabling is off."""
    policy = presets()["outpost"].policy
    assert gaps("outpost") == [30, 60, 120, 240, 480, 960, 1_920, 3_840, 7_680, 15_360]
    assert elapsed("outpost")[-1] == clock("08:31:30")
    assert policy.schedule.jitter == NoJitter()
    assert policy.timeout_s == 5
    assert policy.disable is None
    assert {verdict for status, verdict in verdicts("outpost").items() if status >= 300} == {Verdict.RETRY}


def test_square() -> None:
    """Square's webhooks overview: 11 retries at these intervals, then the notification is discarded; 10 s."""
    minutes = [1, 2, 4, 8, 16, 32, 60, 2 * 60, 4 * 60, 8 * 60, 8 * 60]
    assert gaps("square") == [60 * minute for minute in minutes]
    assert elapsed("square")[-1] == clock("24:03:00")
    assert presets()["square"].policy.timeout_s == 10


def test_sns() -> None:
    """The Amazon SNS guide: three retries 20 s apart, about 15 s, "outside the range of 200-4xx" is a failure."""
    assert elapsed("sns") == [0, 20, 40, 60]
    assert presets()["sns"].policy.timeout_s == 15
    assert {status for status, verdict in verdicts("sns").items() if verdict is Verdict.RETRY} == {500, 503}
    assert presets()["sns"].policy.schedule.jitter == EqualJitter()
    assert "schedule.jitter" in presets()["sns"].from_default


def test_naive() -> None:
    """No restraint at all, and no end that an outage could reach."""
    policy = presets()["naive"].policy
    assert policy.schedule == Exponential(base_s=30, multiplier=1, retries=1_000_000, jitter=NoJitter())
    assert {gap_s(policy.schedule, n) for n in (1, 2, 1_000, 1_000_000)} == {30}
    assert (policy.breaker, policy.disable, policy.budget, policy.adaptive) == (None, None, None, None)
    assert policy.limits == Limits(concurrency=None, rate_per_s=None)
    assert policy.retry_after.mode == "ignore"


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_survives_its_way_through_json(name: str) -> None:
    policy = presets()[name].policy
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
    assert Policy.model_validate(json.loads(policy.model_dump_json())) == policy
    assert name_of(Policy.model_validate_json(policy.model_dump_json()), presets()) == name


def field_at(policy: Policy, path: str) -> Any:
    value: Any = policy
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("name", NAMES)
def test_what_is_marked_as_the_default_s_is_the_default_s(name: str) -> None:
    preset = presets()[name]
    for path in preset.from_default:
        assert field_at(preset.policy, path) == field_at(Policy(), path), path
    assert len(set(preset.from_default)) == len(preset.from_default)


@pytest.mark.parametrize("name", NAMES[1:])
def test_what_differs_from_the_default_is_not_marked(name: str) -> None:
    preset = presets()[name]
    for part in Policy.model_fields:
        if getattr(preset.policy, part) != getattr(Policy(), part):
            assert part not in preset.from_default


def test_a_policy_that_is_no_preset_s_has_no_name() -> None:
    assert name_of(Policy(timeout_s=29), presets()) is None


ABOUT = 'summary = "Ours."\nsource = "us"\n'


def own(rest: str = "") -> Preset:
    return load(f"[mine]\n{ABOUT}{rest}")["mine"]


def test_a_file_of_ones_own_has_the_same_form() -> None:
    mine = own("timeout_s = 3\n[mine.limits]\nconcurrency = 7")
    assert (mine.name, mine.summary, mine.source) == ("mine", "Ours.", "us")
    assert mine.policy == Policy(timeout_s=3, limits=Limits(concurrency=7))
    assert mine.from_default == (
        "schedule", "verdicts", "retry_after", "breaker", "disable", "budget", "limits.rate_per_s", "limits.burst",
        "adaptive", "connect_timeout_s",
    )  # fmt: skip


def test_a_preset_that_fixes_nothing_is_the_default_by_another_name() -> None:
    assert own().policy == Policy()
    assert own().from_default == tuple(Policy.model_fields)


def test_what_a_schedule_leaves_out_is_not_the_default_s_but_for_its_jitter() -> None:
    """The default's window would end another schedule where nobody expects it."""
    mine = own('schedule = { kind = "exponential", base_s = 1, multiplier = 2, retries = 3 }')
    assert mine.policy.schedule == Exponential(base_s=1, multiplier=2, retries=3, window_s=None, jitter=EqualJitter())
    assert "schedule.jitter" in mine.from_default
    assert "schedule.window_s" not in mine.from_default


def test_null_is_said_in_words_for_parts_and_fields() -> None:
    mine = own('adaptive = "null"\nbreaker = "null"\nlimits = { concurrency = "null" }')
    assert (mine.policy.adaptive, mine.policy.breaker, mine.policy.limits.concurrency) == (None, None, None)
    assert not {"adaptive", "breaker", "limits.concurrency"} & set(mine.from_default)


def test_an_empty_file_holds_no_preset() -> None:
    assert load("") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mine = [", "own.toml is not TOML: "),
        ("[" * 100_000, "own.toml is not TOML: "),
        (f"x = {'9' * 5_000}", "own.toml is not TOML: "),
        ("[mine]\n[mine]", "own.toml is not TOML: "),
        ("mine = 3", "own.toml: preset 'mine': it is no table: write its fields below [mine]"),
        (f"[Mine]\n{ABOUT}", "preset 'Mine': a name is up to 64 lower-case letters, digits and hyphens"),
        (f'["a b"]\n{ABOUT}', "preset 'a b': a name is up to 64 lower-case letters, digits and hyphens"),
        (f"[{'a' * 65}]\n{ABOUT}", "a name is up to 64 lower-case letters, digits and hyphens"),
        (f"[repost]\n{ABOUT}", "preset 'repost': there is a built-in preset of this name: choose another"),
        ('[mine]\nsource = "us"', "preset 'mine': summary: it is missing or no text"),
        ('[mine]\nsummary = "Ours."\nsource = 3', "preset 'mine': source: it is missing or no text"),
        ('[mine]\nsummary = " "\nsource = "us"', "preset 'mine': summary: it is missing or no text"),
        (f"[mine]\n{ABOUT}retires = 3", "preset 'mine': retires: there is no such field"),
        (f"[mine]\n{ABOUT}retires = {{ n = 3 }}", "preset 'mine': retires: there is no such field"),
        (f"[mine]\n{ABOUT}breaker = false", "breaker: Input should be a valid dictionary"),
        (f'[mine]\n{ABOUT}limits = "null"', "limits: Input should be a valid dictionary"),
        (f"[mine]\n{ABOUT}breaker = {{ fails = 3 }}", "breaker.fails: there is no such field"),
        (f'[mine]\n{ABOUT}timeout_s = "null"', "timeout_s: Input should be a valid number"),
        (f"[mine]\n{ABOUT}timeout_s = 99", "timeout_s: Input should be less than or equal to 30"),
        (f"[mine]\n{ABOUT}timeout_s = nan", "timeout_s: Input should be"),
        (f"[mine]\n{ABOUT}timeout_s = 2030-01-31", "timeout_s: Input should be a valid number"),
        (f"[mine]\n{ABOUT}schedule = {{ gaps_s = [1] }}", "schedule: its `kind` is missing: add it"),
        (f'[mine]\n{ABOUT}schedule = {{ kind = "ladder" }}', "schedule.gaps_s: it is missing: add it"),
        (f'[mine]\n{ABOUT}schedule = "null"', "schedule: "),
        (f"[mine]\n{ABOUT}verdicts = {{ retry = ['4xx', '5xx'] }}", "verdicts: 4xx has more than one verdict"),
        (f"[mine]\n{ABOUT}limits = {{ concurrency = 'null' }}", "adaptive needs limits.concurrency to stay under"),
        (f"[mine]\n{ABOUT}a = 1\nb = 2", "a: there is no such field: correct its name or remove it; b: "),
    ],
)
def test_a_mistake_names_file_preset_and_field_and_says_what_to_do(text: str, says: str) -> None:
    with pytest.raises(InvalidPresets) as refused:
        load(text, "own.toml")
    assert str(refused.value).startswith("own.toml")
    assert says in str(refused.value)


@given(
    st.one_of(
        st.text(),
        st.dictionaries(
            st.sampled_from(["timeout_s", "breaker", "schedule", "limits.burst", "verdicts.retry", "x"]),
            st.sampled_from(["1", "-1e400", "inf", "true", '"null"', "[]", "{}", '{kind = "ladder"}', "'x'", "1e3"]),
        ).map(lambda fields: f"[mine]\n{ABOUT}" + "".join(f"{name} = {value}\n" for name, value in fields.items())),
    )
)
@example("a." * 2_000 + "a = 1")
@example(f"[mine]\n{ABOUT}schedule.{'a.' * 2_000}a = 1")
@settings(max_examples=200)
def test_a_file_is_presets_or_a_mistake_whatever_is_in_it(text: str) -> None:
    try:
        found = load(text)
    except InvalidPresets:
        return
    for preset in found.values():
        assert Policy.model_validate_json(preset.policy.model_dump_json()) == preset.policy


def test_own_presets_stand_behind_the_built_in_ones(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f"[mine]\n{ABOUT}", encoding="utf-8")
    assert tuple(with_own(path)) == (*NAMES, "mine")
    assert with_own(None) == presets()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"\xe9")
    for path, says in (
        (tmp_path / "none.toml", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "latin.toml", "name a TOML file in UTF-8"),
        (Path("a\0b"), "null"),
    ):
        with pytest.raises(InvalidPresets, match=says) as refused:
            with_own(path)
        assert str(refused.value).startswith(str(path))


@pytest.mark.parametrize("function", ["ingest", "claimer"])
def test_the_hot_functions_import_no_presets(function: str) -> None:
    """They see policies as they are stored; TOML would only slow their start."""
    script = f"import sys, {function}; print(' '.join(sys.modules))"
    done = subprocess.run(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env={}
    )
    loaded = set(done.stdout.split())
    assert "forbear.policy.model" in loaded or function == "ingest"
    assert not loaded & {"tomllib", "forbear.policy.presets"}


def test_verdicts_of_presets_are_complete() -> None:
    """Every status that a receiver may answer with has a verdict under every preset."""
    for preset in presets().values():
        assert isinstance(preset.policy.verdicts, Verdicts)
        for status in range(200, 600):
            assert classify(preset.policy.verdicts, Answer(status, None, ())) in Verdict
