"""Answers HTTP events: with the event itself, with the response that the request asks for, or not at all."""

import base64
import json
from typing import Any


def handler(event: Any, _context: Any) -> Any:
    wish = event["headers"].get("test-wish")
    if wish == "return":
        body = event["body"]
        return json.loads(base64.b64decode(body) if event["isBase64Encoded"] else body)
    if wish == "raise":
        raise LookupError("as wished")
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(event)}
