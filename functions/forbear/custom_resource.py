"""CloudFormation's protocol for custom resources: an event in, one answer by PUT to the address that the event names.

The contract is "Custom resource request types" and "response objects" of the AWS CloudFormation template reference.
Owns the shape of the answer, and that there always is one: without, a stack waits for an hour. Knows nothing of what
the resource is.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final

logger = logging.getLogger(__name__)

# Kept for the answer, in seconds: three tries of three seconds.
RESERVE_S: Final = 10.0
TRIES: Final = 3
TIMEOUT_S: Final = 3.0
PAUSE_S: Final = 0.3
# An answer is 4,096 bytes at most, all of it; a character may take four.
MOST_CHARACTERS: Final = 500
UNDELIVERED: Final = (OSError, HTTPException)


class Foreseen(Exception):
    """The work failed in a way that was foreseen: the message says why and what to do, and may be shown."""


def is_request(event: Mapping[str, Any]) -> bool:
    """Whether an event comes from CloudFormation, which waits for an answer elsewhere."""
    return "ResponseURL" in event


def respond(
    event: Mapping[str, Any], work: Callable[[Mapping[str, Any]], Mapping[str, str]], *, name: str, time_left_s: float
) -> None:
    """Do what CloudFormation asks for, and tell it what came of that.

    Deleting the resource does nothing and succeeds.

    Args:
        event: CloudFormation's.
        work: creates or updates the resource, given its properties. Gives its attributes. It may run twice.
        name: the resource's physical id when it is new; it keeps the one that it has.
        time_left_s: until the function is ended. When it is nearly up, the answer is that the work failed.

    Raises:
        OSError, HTTPException: the answer could not be delivered. Lambda then calls once more.
    """
    turn = threading.Lock()
    answer = {
        "PhysicalResourceId": event.get("PhysicalResourceId") or name,
        **{key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")},
    }

    def tell(status: str, **more: Any) -> None:
        if turn.acquire(blocking=False):  # one answer, whoever comes first
            _put(event["ResponseURL"], {"Status": status, **more, **answer})

    def give_up() -> None:
        try:
            tell("FAILED", Reason="it took too long: the log of the function says what it waited for; try again")
        except UNDELIVERED:
            logger.exception("CloudFormation could not be told that time is up")

    watch = threading.Timer(max(0.0, time_left_s - RESERVE_S), give_up)
    watch.daemon = True
    watch.start()
    try:
        done = {} if event["RequestType"] == "Delete" else work(event["ResourceProperties"])
    except Foreseen as error:
        logger.exception("failed")
        tell("FAILED", Reason=str(error)[:MOST_CHARACTERS])
    except Exception as error:
        logger.exception("failed in an unforeseen way")
        tell("FAILED", Reason=f"{type(error).__name__}, which nobody foresaw: the log of the function has it in full")
    else:
        tell("SUCCESS", Data={name: value[:MOST_CHARACTERS] for name, value in done.items()})
    finally:
        watch.cancel()
        watch.join()  # it may be answering: who returns now is frozen


def _put(url: str, answer: Mapping[str, Any]) -> None:
    """Deliver an answer; the same one twice does no harm, so a lost acknowledgement is no reason to stop."""
    request = urllib.request.Request(  # noqa: S310 - CloudFormation's own address
        url,
        data=json.dumps(answer, ensure_ascii=False).encode(errors="replace"),
        method="PUT",
        # The signature in the address is over an empty type.
        headers={"content-type": ""},
    )
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - see above
                return
        except UNDELIVERED as error:
            if not left:
                raise
            logger.warning("CloudFormation did not take the answer: %s", error)
            time.sleep(PAUSE_S)
