"""What every part of a policy has in common, and the units of time that its bounds are written in."""

from pydantic import BaseModel, ConfigDict

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
YEAR_S = 366 * DAY_S


class Part(BaseModel):
    """A validated, immutable piece of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
