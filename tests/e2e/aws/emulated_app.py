"""The CDK app of the emulated deployment: the real stack, and then its template as the emulator can take it.

Run by the CDK's command line, in place of app.py. Named apart from that, since both can be imported in one process.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import infra.node  # noqa: F401 - chooses the Node that the next import starts

# isort: split
import aws_cdk as cdk

from infra.config import StackConfig
from infra.stack import ForbearStack
from tests.e2e.aws.left_out import for_emulator

DATABASE = "FORBEAR_EMULATED_DATABASE"
LEFT_OUT = "FORBEAR_EMULATED_LEFT_OUT"


def main() -> None:
    """Synthesize, and rewrite what was written. The environment names the database, and a file for the list."""
    app = cdk.App()
    stack = ForbearStack(app, config=StackConfig.read(app.node.get_all_context(), Path(__file__).parent))
    file = Path(app.synth().get_stack_by_name(stack.stack_name).template_full_path)
    template, left_out = for_emulator(json.loads(file.read_text(encoding="utf-8")), os.environ[DATABASE])
    file.write_text(json.dumps(template), encoding="utf-8")
    Path(os.environ[LEFT_OUT]).write_text("\n".join(left_out), encoding="utf-8")


if __name__ == "__main__":
    main()
