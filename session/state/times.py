"""Times at the edge of the service: microseconds since 1970 (UTC) inside, RFC 3339 outside."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1)


def rfc3339(us: int | None) -> str | None:
    """Return ``us`` as RFC 3339 UTC with microseconds; None stays None, years are held within 1 to 9999."""
    if us is None:
        return None
    try:
        moment = _EPOCH + dt.timedelta(microseconds=us)
    except OverflowError:
        moment = dt.datetime.max if us > 0 else dt.datetime.min
    return moment.isoformat(timespec="microseconds") + "Z"
