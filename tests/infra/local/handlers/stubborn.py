"""Does not end when asked to."""

import os
import signal
import time
from typing import Any

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "SLOW" in os.environ:
    time.sleep(60)


def handler(_event: Any, _context: Any) -> Any:
    return os.getpid()
