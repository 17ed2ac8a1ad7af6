"""Signatures for AWS: requests to a deployed stack are signed with Signature Version 4, by botocore.

Owns finding credentials and region. Source: "AWS Signature Version 4 for API requests", AWS IAM User Guide.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from infra.cli.errors import UsageError

# An API's default endpoint and a function URL name their region.
_REGION_IN_HOST = re.compile(
    r"[a-z0-9-]+\.(?:execute-api|lambda-url)\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|on\.aws)"
)
# Beside the host and the time, what is signed is what means something to Forbear: a proxy may change the rest.
_SIGNED = re.compile(r"content-type|idempotency-key|forbear-.*")


class SigV4(httpx.Auth):
    """Signs each request of a client."""

    requires_request_body = True

    def __init__(self, service: str, region: str, credentials: Any) -> None:
        """Take what signing needs.

        Args:
            service: The AWS service that checks the signature.
            region: Its region.
            credentials: botocore's; they are asked anew for each request, for they may expire and be refreshed.
        """
        self._service = service
        self._region = region
        self._credentials = credentials

    @classmethod
    def from_environment(cls, service: str, host: str) -> SigV4:
        """Find credentials where every AWS tool looks for them, and the region in the host or else there too.

        Raises:
            UsageError: There are none, or they cannot be used, or the region is not known.
        """
        try:
            session = Session()
            found = _REGION_IN_HOST.fullmatch(host)
            region = found[1] if found else session.get_config_variable("region")
            credentials = session.get_credentials()
        except BotoCoreError as error:
            raise UsageError(f"the AWS configuration cannot be used: {error}") from error
        if credentials is None:
            raise UsageError(f"no AWS credentials to sign requests to {host}: log in, or set AWS_PROFILE")
        if region is None:
            raise UsageError(f"the AWS region of {host} is not known: set AWS_REGION")
        return cls(service, region, credentials)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Add the signature's headers to a request."""
        try:
            credentials = self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise UsageError(f"the AWS credentials cannot be used: {error}") from error
        signed = AWSRequest(
            method=request.method,
            url=str(request.url),
            data=request.content,
            headers={name: value for name, value in request.headers.items() if _SIGNED.fullmatch(name)},
        )
        SigV4Auth(credentials, self._service, self._region).add_auth(signed)
        for name in ("Authorization", "X-Amz-Date", "X-Amz-Security-Token"):
            if name in signed.headers:
                request.headers[name] = signed.headers[name]
        yield request
