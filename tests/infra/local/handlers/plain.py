"""Does what the event says; what it returns tells about the process that it ran in."""

import json
import os
import socket
import sys
import time
from typing import Any

calls = 0


def handler(event: Any, context: Any) -> Any:
    global calls  # noqa: PLW0603 - module-level state is what is tested
    calls += 1
    match event:
        case {"raise": message}:
            raise LookupError(message)
        case {"exit": code}:
            os._exit(code)
        case {"sleep": seconds}:
            time.sleep(seconds)
        case {"print": text, "times": times}:
            for _ in range(times):
                print(text)  # noqa: T201
                print(text, file=sys.stderr)  # noqa: T201
        case {"return": value}:
            return value
        case {"blob": size}:
            return "x" * size
        case {"gate": port}:
            with socket.create_connection(("127.0.0.1", port)) as gate:
                gate.sendall(f"{os.getpid()}\n".encode())
                gate.recv(1)
            print("through the gate")  # noqa: T201
        case {"fail": times}:
            print(f"call {calls} of {context.aws_request_id}")  # noqa: T201
            if calls <= times:
                raise LookupError("not yet")
        case {"context": True}:
            return {
                "request_id": context.aws_request_id,
                "name": context.function_name,
                "version": context.function_version,
                "arn": context.invoked_function_arn,
                "memory": context.memory_limit_in_mb,
                "remaining_ms": context.get_remaining_time_in_millis(),
                "log_group": context.log_group_name,
                "environment": dict(os.environ),
                "path": sys.path,
            }
        case _:
            print(f"tick {json.dumps(event)}")  # noqa: T201
    return {"calls": calls, "pid": os.getpid()}
