"""The CDK app: what `cdk deploy` runs. `-c profile=production`, `-c config=forbear.toml`, `-c database.max_acu=8`."""

import sys
from pathlib import Path

import infra.node  # noqa: F401 - chooses the Node that the next import starts

# isort: split
import aws_cdk as cdk

from infra.config import InvalidConfig, StackConfig
from infra.stack import ForbearStack

app = cdk.App()
try:
    ForbearStack(app, config=StackConfig.read(app.node.get_all_context(), Path(__file__).parent))
except InvalidConfig as error:
    sys.exit(f"forbear: {error}")
app.synth()
