"""The local stack's runtime for functions under torture: the same, on a machine whose clock may be wrong.

Run as `python -m infra.torture.runtime ingest.handler`. The runtime itself keeps the true time: until when an
invocation may last is told by the same clock that it is compared with.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from infra.local import bootstrap
from infra.torture.wrong_clock import FOLDER, install, offsets


def main() -> None:
    """Run the handler that the first argument names."""
    folder, function = Path(os.environ[FOLDER]), os.environ["AWS_LAMBDA_FUNCTION_NAME"]
    vars(bootstrap)["time"] = install(lambda: offsets(folder).get(function, 0.0))
    bootstrap.main(sys.argv[1:])


if __name__ == "__main__":
    main()
