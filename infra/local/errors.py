"""What the local AWS services refuse, with the error codes and statuses that AWS answers with.

Owns codes and texts only. Source: the error shapes of the services' API references.
"""

from http import HTTPStatus


class AwsError(Exception):
    """A call that a service refused.

    Attributes:
        code: The value of `x-amzn-ErrorType`, by which SDKs know the error.
        status: The HTTP status.
        fields: Members of the error document beside the message.
    """

    code = "ServiceException"
    status = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, message: str, **fields: str) -> None:
        super().__init__(message)
        self.fields = fields


class FunctionNotFound(AwsError):
    """There is no function of that name."""

    code = "ResourceNotFoundException"
    status = HTTPStatus.NOT_FOUND

    def __init__(self, reference: str) -> None:
        super().__init__(f"Function not found: {reference}", Type="User")


class TooManyRequests(AwsError):
    """All environments of a function are busy."""

    code = "TooManyRequestsException"
    status = HTTPStatus.TOO_MANY_REQUESTS

    def __init__(self) -> None:
        super().__init__("Rate Exceeded.", Type="User", Reason="ReservedFunctionConcurrentInvocationLimitExceeded")


class RequestTooLarge(AwsError):
    """A payload over the limit of its invocation type."""

    code = "RequestEntityTooLargeException"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    def __init__(self, size: int, invocation_type: str, limit: int) -> None:
        super().__init__(
            f"{size} byte payload is too large for the {invocation_type} invocation type (limit {limit} bytes)",
            Type="User",
        )


class InvalidRequestContent(AwsError):
    """A payload that is not JSON."""

    code = "InvalidRequestContentException"
    status = HTTPStatus.BAD_REQUEST

    def __init__(self, reason: str) -> None:
        super().__init__(f"Could not parse request body into json: {reason}", Type="User")


class FunctionUnavailable(AwsError):
    """The stack is stopping. The code is one that SDKs do not try again, so that callers end quickly."""

    code = "ResourceConflictException"
    status = HTTPStatus.CONFLICT

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The operation cannot be performed at this time. The stack of {name} is stopping.", Type="User"
        )


class ScheduleNotFound(AwsError):
    """There is no schedule of that name."""

    code = "ResourceNotFoundException"
    status = HTTPStatus.NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"Schedule {name} does not exist.")


class ScheduleExists(AwsError):
    """There is a schedule of that name already."""

    code = "ConflictException"
    status = HTTPStatus.CONFLICT

    def __init__(self, name: str) -> None:
        super().__init__(f"Schedule {name} already exists.")


class InvalidSchedule(AwsError):
    """A schedule that cannot be."""

    code = "ValidationException"
    status = HTTPStatus.BAD_REQUEST
