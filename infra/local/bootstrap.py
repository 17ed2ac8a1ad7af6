"""A small runtime: runs one handler against the Lambda Runtime API until the process is ended.

Run as `python -m infra.local.bootstrap ingest.handler`, with the environment that Lambda gives to an execution
environment. Standard library only, so that a cold start costs what the handler's own imports cost, and behaves as
`awslambdaric` does (which can stand in its place): the same context, log format, error documents and refusals.
"""

import importlib
import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

_API = "/2018-06-01/runtime"

_request_id = ""


class LambdaContext:
    """What a handler learns about its invocation; attribute names are Lambda's."""

    def __init__(self, request_id: str, function_arn: str, deadline_ms: int) -> None:
        self.aws_request_id = request_id
        self.invoked_function_arn = function_arn
        self.function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME")
        self.function_version = os.environ.get("AWS_LAMBDA_FUNCTION_VERSION")
        self.memory_limit_in_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
        self.log_group_name = os.environ.get("AWS_LAMBDA_LOG_GROUP_NAME")
        self.log_stream_name = os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME")
        self.client_context = None
        self.identity = None
        self.tenant_id = None
        self._deadline_ms = deadline_ms

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation, never below 0."""
        return max(0, self._deadline_ms - int(time.time() * 1_000))


type Handler = Callable[[Any, LambdaContext], Any]


class RuntimeFault(Exception):
    """Something that is no exception of the handler; `error_type` is Lambda's name for it."""

    def __init__(self, error_type: str, message: str, trace: list[str] | None = None) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.trace = trace or []


class RuntimeClient:
    """The runtime's side of the Runtime API, over one connection that is kept open.

    Plain HTTP/1.1 with `Content-Length`, which is all that the local Runtime API speaks. To import `http.client` would
    take as long as the rest of a cold start.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._socket = socket.create_connection((host.strip("[]"), int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def next(self) -> tuple[dict[str, str], bytes]:
        """Wait, without limit, for the next invocation: its headers (names in lower case) and its payload."""
        status, headers, payload = self._call("GET", "/invocation/next")
        if status != 200:
            raise ConnectionError(f"no more work ({status})")
        return headers, payload

    def respond(self, request_id: str, payload: bytes) -> None:
        """Post the handler's result."""
        self._call("POST", f"/invocation/{request_id}/response", payload)

    def report(self, path: str, error: dict[str, object]) -> None:
        """Post an error document of an invocation or of the initialisation."""
        self._call("POST", path, json.dumps(error).encode())

    def _call(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        head = f"{method} {_API}{path} HTTP/1.1\r\nHost: {self._address}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)
        status_line, *lines = iter(self._line, "")
        fields = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in fields}
        return int(status_line.split()[1]), headers, self._answers.read(int(headers["content-length"]))

    def _line(self) -> str:
        line = self._answers.readline()
        if not line:
            raise ConnectionError("the connection was closed")
        return line.decode("latin-1").rstrip("\r\n")


def load(handler: str) -> Handler:
    """Import a handler.

    Args:
        handler: `module.function`; the module may be a path with dots or slashes.

    Returns:
        The function.

    Raises:
        RuntimeFault: If the name, the module or the function is wrong. What the module itself raises passes through.
    """
    module_name, dot, function_name = handler.rpartition(".")
    if not dot:
        raise RuntimeFault("Runtime.MalformedHandlerName", f"Bad handler '{handler}': it is not module.function")
    try:
        module = importlib.import_module(module_name.replace("/", "."))
    except ImportError as error:
        message = f"Unable to import module '{module_name}': {error}"
        raise RuntimeFault("Runtime.ImportModuleError", message) from error
    except SyntaxError as error:
        trace = [f'  File "{error.filename}" Line {error.lineno}\n    {error.text}']
        message = f"Syntax error in module '{module_name}': {error}"
        raise RuntimeFault("Runtime.UserCodeSyntaxError", message, trace) from error
    try:
        found: Handler = getattr(module, function_name)
    except AttributeError as error:
        message = f"Handler '{function_name}' missing on module '{module_name}'"
        raise RuntimeFault("Runtime.HandlerNotFound", message) from error
    return found


def answer(handler: Handler, payload: bytes, context: LambdaContext) -> str:
    """Call a handler with a JSON event.

    Args:
        handler: The function.
        payload: The event.
        context: Its context.

    Returns:
        The result as JSON.

    Raises:
        RuntimeFault: If the event is no JSON, or the result (a coroutine, say) cannot be written as JSON.
    """
    try:
        event = json.loads(payload)
    except ValueError as error:
        raise RuntimeFault("Runtime.UnmarshalError", f"Unable to unmarshal input: {error}") from error
    result = handler(event, context)
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RuntimeFault("Runtime.MarshalError", f"Unable to marshal response: {error}") from error


def error_document(error: Exception, request_id: str = "") -> dict[str, object]:
    """The error document that Lambda hands to the caller.

    Args:
        error: What was raised.
        request_id: The invocation's id; empty while initialising.

    Returns:
        `errorMessage`, `errorType`, `requestId` and `stackTrace`, the latter without this module's own frames.
    """
    if isinstance(error, RuntimeFault):
        error_type, trace = error.error_type, error.trace
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((i for i, frame in enumerate(frames) if frame.filename != __file__), 0)
        error_type, trace = type(error).__name__, traceback.format_list(frames[own:])
    return {"errorMessage": str(error), "errorType": error_type, "requestId": request_id, "stackTrace": trace}


def run(handler_name: str, client: RuntimeClient) -> None:
    """Initialise, then serve one invocation after the other; returns never.

    Args:
        handler_name: `module.function`.
        client: The Runtime API.

    Raises:
        SystemExit: If the handler cannot be loaded.
        ConnectionError: If the Runtime API has gone, or has no more work.
    """
    global _request_id  # noqa: PLW0603 - one invocation at a time is what a process of Lambda has
    try:
        handler = load(handler_name)
    except Exception as error:  # noqa: BLE001 - whatever the module raises is an initialisation error
        document = error_document(error)
        _log_error(document)
        client.report("/init/error", document)
        sys.exit(1)
    while True:
        headers, payload = client.next()
        _request_id = headers["lambda-runtime-aws-request-id"]
        os.environ["_X_AMZN_TRACE_ID"] = headers.get("lambda-runtime-trace-id", "")
        context = LambdaContext(
            _request_id,
            headers["lambda-runtime-invoked-function-arn"],
            int(headers["lambda-runtime-deadline-ms"]),
        )
        try:
            result = answer(handler, payload, context)
        except Exception as error:  # noqa: BLE001 - whatever the handler raises is the invocation's error
            document = error_document(error, _request_id)
            _log_error(document)
            client.report(f"/invocation/{_request_id}/error", document)
        else:
            # A lone surrogate in a result cannot be encoded and ends the process, as it does under awslambdaric.
            client.respond(_request_id, result.encode())


def _end_with_the_stack() -> None:
    """End this process when the one that started it ends, however suddenly: it holds the other end of our input."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, name="stack-watch", daemon=True).start()


def _log_error(document: dict[str, object]) -> None:
    trace = document["stackTrace"]
    lines = [f"[ERROR] {document['errorType']}: {document['errorMessage']}", "Traceback (most recent call last):"]
    sys.stdout.write("\n".join([*lines, *(trace if isinstance(trace, list) else [])]).rstrip("\n") + "\n")


def _set_up_logging() -> None:
    def add_request_id(record: logging.LogRecord) -> bool:
        record.aws_request_id = _request_id
        return True

    logging.Formatter.converter = time.gmtime
    output = logging.StreamHandler(sys.stdout)
    output.setFormatter(
        logging.Formatter(
            "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s", "%Y-%m-%dT%H:%M:%S"
        )
    )
    output.addFilter(add_request_id)
    logging.getLogger().addHandler(output)


def main(arguments: list[str]) -> None:
    """Run the handler named by the first argument, or by `_HANDLER`."""
    for stream in (sys.stdout, sys.stderr):
        # What was written must be out when the process dies.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a process of its own has real text streams
    _set_up_logging()
    _end_with_the_stack()
    handler_name = arguments[0] if arguments else os.environ["_HANDLER"]
    try:
        run(handler_name, RuntimeClient(os.environ["AWS_LAMBDA_RUNTIME_API"]))
    except ConnectionError as error:
        sys.exit(f"The Runtime API is gone: {error}.")


if __name__ == "__main__":
    main(sys.argv[1:])
