"""Random sequences of everything that happens to the queue, against a model, on the real SQL.

The quick run is part of the suite and always the same. A long one, with a seed of its own, for as many examples and
steps as wanted:

    FORBEAR_MODEL_EXAMPLES=2000 FORBEAR_MODEL_STEPS=80 pytest -n 0 -p no:randomly tests/functions/queue/model

What it finds it shrinks, prints as a few lines of Python, and tries first the next time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.functions.queue.model.machine import machine_on
from tests.functions.queue.model.world import World

EXAMPLES, STEPS = int(os.environ.get("FORBEAR_MODEL_EXAMPLES", "0")), int(os.environ.get("FORBEAR_MODEL_STEPS", "40"))
QUICK = settings(
    max_examples=30, stateful_step_count=40, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
LONG = settings(
    max_examples=EXAMPLES or 1, stateful_step_count=STEPS, print_blob=True, suppress_health_check=list(HealthCheck)
)


@pytest.mark.timeout(0 if EXAMPLES else 600)
def test_whatever_happens_in_whatever_order_the_queue_is_as_the_model_says(world: World) -> None:
    run_state_machine_as_test(machine_on(world), settings=LONG if EXAMPLES else QUICK)
