"""The deployed stack on one machine: the same Lambda handlers behind stand-ins for the AWS services around them.

Nothing here knows what a handler does; the package knows the shapes, limits and failure modes of Lambda, API Gateway,
function URLs and EventBridge Scheduler. Every execution environment loads this
module, so it imports nothing.
"""
