"""Policies that bring a lane into all its states within a few attempts; their leases lapse within a tick."""

from __future__ import annotations

from typing import Any

SHORT: dict[str, Any] = {"kind": "ladder", "gaps_s": [5, 30], "jitter": {"kind": "none"}, "retries": 2}
SPREAD: dict[str, Any] = {"kind": "exponential", "base_s": 0.5, "multiplier": 3, "cap_s": 600, "retries": 6}
WINDOW: dict[str, Any] = {"kind": "exponential", "base_s": 20, "multiplier": 2, "cap_s": 600, "window_s": 300}
# No token is waited for longer than two seconds: the invariants reckon with a tick.
POLICIES: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"schedule": SHORT, "breaker": None, "budget": None},
    "one at a time": {"schedule": SPREAD, "breaker": None, "adaptive": None, "limits": {"concurrency": 1}},
    "slow": {"schedule": SPREAD, "budget": None, "limits": {"rate_per_s": 2, "burst": 2}},
    "breaks": {"schedule": SHORT, "breaker": {"failures": 2, "cooldown_s": 10}, "limits": {"concurrency": 4}},
    "breaks at once": {
        "schedule": WINDOW,
        "breaker": {"failures": 1, "cooldown_s": 1, "slow_start": False},
        "budget": {"ratio": 0, "floor_per_s": 0.5, "window_s": 4},
    },
    "dead-letters": {"schedule": SHORT, "breaker": {"failures": 1, "cooldown_s": 20, "dead_letter": True}},
    "disables": {
        "schedule": WINDOW,
        "breaker": {"volume": 3, "volume_window_s": 60, "cooldown_s": 5},
        "disable": {"after_s": 60, "failures": 2, "spread_s": 0},
        "timeout_s": 5,
    },
    "unlimited": {"schedule": SPREAD, "limits": {"concurrency": None}, "adaptive": None, "timeout_s": 20},
}
