"""The functions that SQL may call: their names, and what to write for those that do not exist here."""

from __future__ import annotations

import difflib

from braid.operators.functions.time import FIELDS

# names in SQL, and the aggregates that they mean; COUNT(DISTINCT x) is count_distinct
# fmt: off
_AGGREGATES = (
    "count", "sum", "avg", "min", "max", "stddev_samp", "var_samp", "stddev_pop", "var_pop", "bool_and", "bool_or",
    "count_if",
)
# fmt: on
AGGREGATES = {
    **{name: name for name in _AGGREGATES},
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "every": "bool_and",
    "countif": "count_if",
}
# MIN(DISTINCT x) is MIN(x)
DISTINCT_AGGREGATES = ("count", "min", "max")

# fmt: off
_FUNCTIONS = (
    "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt", "cbrt", "exp", "ln", "log10", "log2", "power", "mod",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "radians", "degrees", "pi", "greatest", "least", "coalesce",
    "nullif", "if", "upper", "lower", "initcap", "length", "trim", "ltrim", "rtrim", "lpad", "rpad", "left", "right",
    "substring", "split_part", "concat", "concat_ws", "replace", "reverse", "repeat", "translate", "ascii", "chr",
    "md5", "sha256", "strpos", "starts_with", "ends_with", "contains", "regexp_like", "regexp_extract",
    "regexp_replace", "date_trunc", "timestampdiff", "datediff", "last_day", "dayname", "monthname",
    "date_format", "strftime", "to_timestamp", "cardinality", "array_contains", "json_extract",
    "json_extract_string", "json_value", "json_query", "json_exists",
)
# fmt: on
_SYNONYMS = {
    "ceiling": "ceil",
    "pow": "power",
    "truncate": "trunc",
    "signum": "sign",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "ucase": "upper",
    "lcase": "lower",
    "btrim": "trim",
    "char": "chr",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "instr": "strpos",
    "startswith": "starts_with",
    "endswith": "ends_with",
    "rlike": "regexp_like",
    "iif": "if",
    "date_diff": "datediff",
    "array_length": "cardinality",
    "list_contains": "array_contains",
    "get_json_object": "json_extract_string",
    "dayofmonth": "day",
    "dayofyear": "doy",
}
_FIELD_FUNCTIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")

FUNCTION_NAMES: dict[str, str] = {
    **{name: name for name in (*_FUNCTIONS, *_FIELD_FUNCTIONS)},
    **_SYNONYMS,
}

# the fields of EXTRACT, also in the plural
FIELD_NAMES: dict[str, str] = {
    **{name: name for name in FIELDS},
    **{f"{name}s": name for name in FIELDS if name not in ("dow", "isodow", "doy", "epoch")},
}

HIGHEST_ROW = (
    "The highest row of each window: SELECT … FROM s [RANGE 8 SECONDS] WHERE x = (SELECT MAX(x) FROM s); of groups, by"
    " the query before it: WITH s AS (SELECT k, SUM(v) AS x FROM r [RANGE 8 SECONDS] GROUP BY k)."
)
"""What stands for ORDER BY, OVER and QUALIFY."""
_KNOWN_AGGREGATES = f"the aggregates are {', '.join(a.upper() for a in dict.fromkeys(AGGREGATES.values()))}."
_INSTEAD = {
    **dict.fromkeys(
        (
            "median",
            "percentile_cont",
            "approx_percentile",
            "quantile",
            "first",
            "last",
            "first_value",
            "last_value",
            "any_value",
            "arg_max",
            "arg_min",
            "max_by",
            "min_by",
            "listagg",
            "string_agg",
            "array_agg",
            "collect",
            "collect_list",
            "corr",
        ),
        f"This version does not have it; {_KNOWN_AGGREGATES}",
    ),
    **dict.fromkeys(("count_distinct", "approx_count_distinct"), "Write COUNT(DISTINCT x), which is exact."),
    **dict.fromkeys(
        ("tumble", "hop", "session", "tumble_start", "tumble_end", "hop_start", "hop_end", "time_bucket"),
        "Windows stand in FROM: FROM TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '8' SECOND) or FROM s [RANGE 8 SECONDS];"
        " their bounds are the columns window_start and window_end.",
    ),
    **dict.fromkeys(
        ("row_number", "rank", "dense_rank", "lag", "lead", "ntile"),
        f"There is no OVER yet. {HIGHEST_ROW}",
    ),
    **dict.fromkeys(
        ("now", "current_timestamp", "localtimestamp", "current_date", "proctime", "random", "rand", "uuid"),
        "A query must give the same rows whenever it runs; compare with the event time column or a constant.",
    ),
    **dict.fromkeys(("any", "some", "all"), "Write x IN (SELECT …) for = ANY, x NOT IN (SELECT …) for <> ALL."),
    **dict.fromkeys(
        ("rstream", "istream", "dstream"),
        "Write EMIT STREAM at the end for changes; rows come once they are final else.",
    ),
    "log": "Write LN(x) for the natural logarithm, LOG10(x) for the common one.",
    **dict.fromkeys(("regexp", "regexp_matches", "similar_to"), "Write REGEXP_LIKE(text, pattern)."),
    "split_index": "Write SPLIT_PART(text, separator, number), which counts from 1.",
    **dict.fromkeys(
        ("to_char", "format_timestamp", "format_datetime"),
        "Write DATE_FORMAT(timestamp, 'yyyy-MM-dd HH:mm:ss').",
    ),
    **dict.fromkeys(("date_add", "dateadd", "timestampadd", "date_sub"), "Write timestamp + INTERVAL '1' DAY."),
    **dict.fromkeys(
        ("to_timestamp_ltz", "from_unixtime", "timestamp_millis"),
        "Write TO_TIMESTAMP(seconds since 1970), TO_TIMESTAMP(x / 1000.0) of milliseconds.",
    ),
    **dict.fromkeys(("unix_timestamp", "epoch_ms"), "Write EXTRACT(EPOCH FROM timestamp)."),
    **dict.fromkeys(("to_date", "date"), "Write CAST(… AS DATE)."),
    **dict.fromkeys(
        ("strptime", "str_to_date", "str_to_timestamp", "parse_date", "parse_datetime", "parse_timestamp"),
        "Write TO_TIMESTAMP(text, 'dd.MM.yyyy HH:mm'), or declare the column as TIMESTAMP, and in WITH how it is"
        " written: 'timestamp.format' = 'dd.MM.yyyy HH:mm'.",
    ),
    "convert": "Write CAST(… AS type).",
}
# below it, names have only a few letters in common, such as DECODE and SECOND
_MIN_SIMILARITY = 0.75


def shown_aggregate(name: str) -> str:
    """Return an aggregate as SQL writes it."""
    return "COUNT(DISTINCT …)" if name == "count_distinct" else name.upper()


def unknown_function(name: str) -> str:
    """Return the message that a function does not exist, with what to write instead."""
    lower = name.lower()
    if lower in _INSTEAD:
        return f"{name.upper()} is not supported. {_INSTEAD[lower]}"
    known = [*FUNCTION_NAMES, *AGGREGATES, "position", "extract"]
    close = difflib.get_close_matches(lower, known, n=1, cutoff=_MIN_SIMILARITY)
    hint = (
        f" Did you mean {close[0].upper()}?" if close else " The page SQL reference (docs/sql-reference.md) lists all."
    )
    return f"The function {name} does not exist.{hint}"
