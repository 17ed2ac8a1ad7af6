"""Runs in place of a function's module under Lambda's runtime client, and measures what that costs.

It imports the function's module, as the runtime client would have, and hands each event on to its handler. The answer
to an event is the handler's answer beside what was measured so far. Nothing is imported here that the runtime client
has not imported already; this file is copied to a place from where it is found without its package.
"""

import importlib
import os
import sys
import time
from typing import Any

_before = set(sys.modules)
_client_cpu_s = time.process_time()
_began_s = time.perf_counter()

_function = importlib.import_module(os.environ["BENCH_FUNCTION"])

_measured = {
    "client_cpu_s": _client_cpu_s,
    "import_cpu_s": time.process_time() - _client_cpu_s,
    "import_s": time.perf_counter() - _began_s,
    "imported": sorted(set(sys.modules) - _before),
}


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Hand an event on. Gives the handler's answer and the measurements."""
    cpu_s, began_s = time.process_time(), time.perf_counter()
    answer = _function.handler(event, context)
    return {
        **_measured,
        "answer": answer,
        "invocation_cpu_s": time.process_time() - cpu_s,
        "invocation_s": time.perf_counter() - began_s,
        "modules": len(set(sys.modules) - _before),
    }
