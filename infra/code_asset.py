"""The functions' code as an asset of CDK's.

Owns how CDK is told to make the bundle. What is in it is `bundling`'s.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import jsii
from aws_cdk import aws_lambda as lambda_

from infra.bundling import Bundle, BundlingError


def code(bundle: Bundle) -> lambda_.Code:
    """The asset, to be shared by all functions: CDK makes it when cdk.out has none of this digest yet.

    Raises:
        BundlingError: a source cannot be read.
    """
    return lambda_.Code.from_asset(
        str(bundle.functions),
        asset_hash_type=cdk.AssetHashType.CUSTOM,
        asset_hash=bundle.digest(),
        bundling=cdk.BundlingOptions(image=lambda_.Runtime.PYTHON_3_13.bundling_image, local=_Local(bundle)),
    )


@jsii.implements(cdk.ILocalBundling)
class _Local:
    """CDK's way to bundle without Docker; the image beside it is never fetched."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def try_bundle(self, output_dir: str, *_options: Any, **_more: Any) -> bool:
        """Make the bundle in a folder that CDK made. Never False: Docker would be asked then.

        Raises:
            SystemExit: it cannot be made. An exception would reach nobody but with the whole stack of CDK around it.
        """
        try:
            self._bundle.build(Path(output_dir))
        except BundlingError as error:
            sys.exit(f"forbear: {error}")
        return True
