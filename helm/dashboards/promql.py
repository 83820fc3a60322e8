"""The expressions of the dashboards.

Metrics are selected by `$namespace` and `$job`, which tell several Braid services in one Prometheus apart. Series of
queries get their names from `braid_query_info`.
"""

from __future__ import annotations

SERVICE = 'namespace=~"$namespace", job=~"$job"'
OF_QUERY = f'{SERVICE}, query_id=~"$query"'
OF_STREAM = f'{SERVICE}, stream=~"$stream"'

EVENT_TIME = "braid_query_event_time_latency_seconds"
PROCESSING_TIME = "braid_query_processing_time_latency_seconds"
DELIVERY = "braid_query_delivery_latency_seconds"
# The quantile 1 of a histogram is the upper edge of its highest filled bucket.
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def of(metric: str, labels: str = SERVICE) -> str:
    """Select a metric."""
    return f"{metric}{{{labels}}}"


def rate(metric: str, labels: str = SERVICE) -> str:
    """Write the per-second rate of a counter over Grafana's interval."""
    return f"rate({of(metric, labels)}[$__rate_interval])"


def by(label: str, expression: str, function: str = "sum") -> str:
    """Bring together the series with the same value of a label."""
    return f"{function} by ({label}) ({expression})"


def total(expression: str) -> str:
    """Sum over everything; 0 while the service is up and the series does not exist yet."""
    return f"sum({expression}) or 0 * max({of('braid_ready')})"


def quantile(metric: str, q: float, labels: str = SERVICE, label: str = "") -> str:
    """Write quantile `q` of a histogram, one series for each value of a label (none: one for all)."""
    grouping = f"le, {label}" if label else "le"
    return f"histogram_quantile({q:g}, {by(grouping, rate(metric + '_bucket', labels))})"


def quantiles(metric: str, labels: str = SERVICE) -> dict[str, str]:
    """Write the usual quantiles of a histogram, legend → expression."""
    return {name: quantile(metric, q, labels) for name, q in QUANTILES.items()}


def greatest(expression: str) -> str:
    """Keep the `$top` greatest series of each moment."""
    return f"topk($top, {expression})"


def named(expression: str) -> str:
    """Add the label `name` to series that have `query_id`; a series without a name stays as it is.

    The right side is 1 for every query: from `braid_query_info` where it lists the query, else from the series itself.
    """
    info = f"max by (query_id, name) ({of('braid_query_info')})"
    return (
        f"({expression}) * on (query_id) group_left (name) ({info} or on (query_id) group by (query_id) ({expression}))"
    )


def ratio(part: str, whole: str, label: str = "", labels: str = SERVICE) -> str:
    """Write the rate of a counter over that of another one, all in all or for each value of a label."""
    if not label:
        return f"sum({rate(part, labels)}) / sum({rate(whole, labels)})"
    return f"{by(label, rate(part, labels))} / {by(label, rate(whole, labels))}"
