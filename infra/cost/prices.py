"""AWS's list prices, dated. docs/aws.md has the same ones; a test compares what comes of them.

Sources: the price pages of the services, as read on `AS_OF`; those that are `remembered` were not looked up then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AS_OF: Final = "2026-11-29"
REGION: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class Price:
    """A list price.

    Attributes:
        dollars: for one unit.
        unit: what one costs that; a number in it, as in `million requests`, is said by `scale`.
        scale: how many of what is counted make a unit.
        free: how many of what is counted are free each month, in an account, for ever.
        remembered: it was not checked against the price list on that day.
    """

    dollars: float
    unit: str
    scale: float = 1
    free: float = 0
    remembered: bool = False


_MILLION: Final = 1e6

LAMBDA_REQUESTS: Final = Price(0.20, "million requests", _MILLION, free=1e6, remembered=True)
LAMBDA_ARM: Final = Price(0.0000133334, "GB-second", free=400_000, remembered=True)
LAMBDA_X86: Final = Price(0.0000166667, "GB-second", free=400_000, remembered=True)
HTTP_API: Final = Price(1.00, "million requests of 512 KiB", _MILLION, remembered=True)
AURORA_CAPACITY: Final = Price(0.12, "ACU-hour")
AURORA_STORAGE: Final = Price(0.10, "GB-month")
AURORA_IO: Final = Price(0.20, "million reads and writes", _MILLION)
AURORA_CAPACITY_IO_OPTIMIZED: Final = Price(0.156, "ACU-hour")
AURORA_STORAGE_IO_OPTIMIZED: Final = Price(0.225, "GB-month")
NAT_GATEWAY: Final = Price(0.045, "hour", remembered=True)
NAT_GATEWAY_DATA: Final = Price(0.045, "GB", remembered=True)
NAT_INSTANCE: Final = Price(0.0042, "hour of a t4g.nano", remembered=True)
NAT_INSTANCE_DISK: Final = Price(0.08, "GB-month", remembered=True)
PUBLIC_ADDRESS: Final = Price(0.005, "hour", remembered=True)
TRANSFER_OUT: Final = Price(0.09, "GB", free=100, remembered=True)
BETWEEN_ZONES: Final = Price(0.02, "GB, counted on both sides", remembered=True)
LOGS: Final = Price(0.50, "GB", free=5, remembered=True)
METRICS: Final = Price(0.30, "series-month", free=10, remembered=True)
ALARMS: Final = Price(0.10, "alarm", free=10, remembered=True)
DASHBOARD: Final = Price(3.00, "dashboard", free=3, remembered=True)
TRACES: Final = Price(5.00, "million traces", _MILLION, free=1e5, remembered=True)
SECRET: Final = Price(0.40, "secret", remembered=True)
KMS_KEY: Final = Price(1.00, "key", remembered=True)
KMS_REQUESTS: Final = Price(0.03, "10,000 requests", 1e4, free=2e4, remembered=True)
SCHEDULER: Final = Price(1.00, "million calls", _MILLION, free=14e6, remembered=True)
