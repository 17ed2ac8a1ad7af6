"""The CDK app: what `cdk deploy` runs. Choices come from forbear.toml beside it, and from `-c database.max_acu=8`."""

import sys
from pathlib import Path

import infra.node  # noqa: F401 - chooses the Node that the next import starts

# isort: split
import aws_cdk as cdk

from infra.bundling import BundlingError, alone
from infra.config import InvalidConfig, StackConfig
from infra.stack import ForbearStack

app = cdk.App()
try:
    with alone(Path(app.outdir)):
        ForbearStack(app, config=StackConfig.read(app.node.get_all_context(), Path(__file__).parent))
        app.synth()
except (InvalidConfig, BundlingError) as error:
    sys.exit(f"forbear: {error}")
