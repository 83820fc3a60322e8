"""SELECT statements and the queries they become."""

from __future__ import annotations

import json

import pytest

from braid.operators.queries import Aggregation, Query, query_from_json
from braid.operators.windows import SessionWindow, Window
from braid.session.sql.parser import parse_statement
from tests.kit.plans import plan_select
from tests.session.sql.catalog import CATALOG, aggregation, define, plan, selection

# a condition on purchases, and what it becomes
CONDITIONS = [
    ("price > 5", ">(price, 5.0)"),
    ("5 < price", ">(price, 5.0)"),
    ("PRICE >= 5.5", ">=(price, 5.5)"),
    ("gem_pack > 5.5", ">(gem_pack, 5)"),
    ("gem_pack <= 5.5", "<=(gem_pack, 5)"),
    ("gem_pack < -5.5", "<=(gem_pack, -6)"),
    ("gem_pack = 5.0", "=(gem_pack, 5)"),
    ("user_id = gem_pack", "=(user_id, gem_pack)"),
    ("price = user_id", "=(price, cast(user_id as DOUBLE))"),
    ("amount > 5", ">(amount, 5.00)"),
    ("price > 2 + 3 * 2", ">(price, 8.0)"),
    ("price > (2 + 3) * 2", ">(price, 10.0)"),
    ("price - 1 - 2 > 0", ">(-(-(price, 1.0), 2.0), 0.0)"),
    ("gem_pack BETWEEN 3 AND 5", "and(>=(gem_pack, 3), <=(gem_pack, 5))"),
    ("gem_pack NOT BETWEEN 3 AND 5", "not(and(>=(gem_pack, 3), <=(gem_pack, 5)))"),
    ("gem_pack IN (1, 2, 3)", "in(gem_pack, 1, 2, 3)"),
    ("gem_pack IN (1)", "=(gem_pack, 1)"),
    ("gem_pack NOT IN (1, 2)", "not(in(gem_pack, 1, 2))"),
    ("name LIKE 'a%' OR name ILIKE '%b' ", "or(like(name, 'a%'), ilike(name, '%b'))"),
    ("name NOT LIKE '10!%' ESCAPE '!'", "not(like(name, '10!%', '!'))"),
    ("name IS NULL", "is_null(name)"),
    ("name IS NOT NULL", "not(is_null(name))"),
    ("ok", "ok"),
    ("ok IS TRUE", "coalesce(ok, False)"),
    ("ok IS NOT FALSE", "coalesce(ok, True)"),
    ("name IS DISTINCT FROM 'a'", "is_distinct_from(name, 'a')"),
    ("NOT ok AND price > 1 OR gem_pack = 2", "or(and(not(ok), >(price, 1.0)), =(gem_pack, 2))"),
    ("NOT (ok AND ok)", "not(and(ok, ok))"),
    ("ok AND (ok AND price < 1)", "and(ok, ok, <(price, 1.0))"),
    ("day >= '2026-01-31'", ">=(day, DATE '2026-01-31')"),
    ("day = DATE '2026-01-31'", "=(day, DATE '2026-01-31')"),
    ("time < '2026-01-31T00:00:00+01:00'", "<(time, TIMESTAMP '2026-01-30T23:00:00')"),
    ("time > TIMESTAMP '2026-01-31 00:00:00.5'", ">(time, TIMESTAMP '2026-01-31T00:00:00.500000')"),
    ("time > TIMESTAMP '2026-01-31' - INTERVAL '1' MONTH", ">(time, TIMESTAMP '2025-12-31T00:00:00')"),
    ("time + INTERVAL 90 MINUTES > time", ">(add_interval(time, 5400000000), time)"),
    ("EXTRACT(HOUR FROM time) = 3", "=(hour(time), 3)"),
    ("YEAR(day) = 2026", "=(year(cast(day as TIMESTAMP)), 2026)"),
    ("CAST(name AS INT) = 3", "=(cast(name as INT), 3)"),
    ("name::DECIMAL(4,1) = 1.5", "=(cast(name as DECIMAL(4,1)), 1.5)"),
    ("CASE gem_pack WHEN 1 THEN price ELSE 0 END > 1", ">(case(=(gem_pack, 1), price, 0.0), 1.0)"),
    ("CASE WHEN ok THEN 1 END = 1", "=(case(ok, 1, NULL), 1)"),
    ("COALESCE(price, 0) > 1", ">(coalesce(price, 0.0), 1.0)"),
    ("name || '!' || gem_pack = 'a'", "=(concat(name, '!', cast(gem_pack as VARCHAR)), 'a')"),
    ("SUBSTRING(name FROM 2 FOR 3) = 'a'", "=(substring(name, 2, 3), 'a')"),
    ("TRIM(LEADING 'x' FROM name) = 'a'", "=(ltrim(name, 'x'), 'a')"),
    ("POSITION('a' IN name) > 0", ">(strpos(name, 'a'), 0)"),
    ("CHAR_LENGTH(name) % 2 = 1", "=(%(length(name), 2), 1)"),
    ("-price < -1", "<(negate(price), -1.0)"),
    ("user_id = -9223372036854775808", "=(user_id, -9223372036854775808)"),
    ("price > NULL", ">(price, NULL)"),
    ("TRUE", "None"),
    ("1 = 1", "None"),
    ("1 = 2", "False"),
    ('"price" > 1 -- a comment', ">(price, 1.0)"),
    ("/* a\ncomment */ purchases.price > 1", ">(price, 1.0)"),
]


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS)
def test_conditions(condition: str, expected: str) -> None:
    assert str(selection(f"SELECT price FROM purchases WHERE {condition}").where) == expected


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("*", ["user_id", "gem_pack", "price", "time", "name", "day", "amount", "ok"]),
        ("p.price, p.NAME", ["price", "name"]),
        ("price AS p, price q", ["p", "q"]),
        ('price AS "unit price"', ["unit price"]),
        ("price  *  2", ["price * 2"]),
        ("UPPER(Name), -price", ["upper(Name)", "-price"]),
        ("CAST(name AS INT)", ["cast(name AS INT)"]),
        (
            "p.*, price AS again",
            ["user_id", "gem_pack", "price", "time", "name", "day", "amount", "ok", "again"],
        ),
        ("NULL AS nothing, 'a' AS \"text\", 1", ["nothing", "text", "1"]),
    ],
)
def test_output_names(items: str, names: list[str]) -> None:
    assert [o.name for o in selection(f"SELECT {items} FROM purchases p").outputs] == names


def test_a_selection_knows_its_stream_by_id() -> None:
    query = selection("select PRICE from PURCHASES;")
    assert query.stream == "s-1"
    assert query.where is None
    assert [str(o.expression) for o in query.outputs] == ["price"]


HOPPING = Window(8_000_000, 4_000_000)
TUMBLING = Window(8_000_000, 8_000_000)
SESSION = SessionWindow(8_000_000)
WINDOWS: list[tuple[str, Window | SessionWindow]] = [
    ("purchases [RANGE 8 SECONDS SLIDE 4 SECONDS]", HOPPING),
    ("purchases [RANGE 8 SECONDS SLIDE 4 SECONDS] AS p", HOPPING),
    ("purchases [range 8 second slice 4000 milliseconds] p", HOPPING),
    ("purchases AS p [RANGE INTERVAL '8' SECOND SLIDE INTERVAL '4' SECOND]", HOPPING),
    ("purchases [RANGE 8 SECONDS] [SLICE 4 SECONDS]", HOPPING),
    ("purchases [RANGE '8' SECOND]", TUMBLING),
    ("purchases [RANGE 1 DAY SLIDE 1.5 HOURS]", Window(86_400_000_000, 5_400_000_000)),
    ("TUMBLE(TABLE purchases, DESCRIPTOR(time), INTERVAL '8' SECOND)", TUMBLING),
    ("TABLE(TUMBLE(TABLE purchases, DESCRIPTOR(TIME), INTERVAL '8' SECOND)) AS p", TUMBLING),
    (
        "TUMBLE(TABLE purchases, DESCRIPTOR(time), INTERVAL '8' SECOND, INTERVAL '3' SECOND)",
        Window(8_000_000, 8_000_000, 3_000_000),
    ),
    (
        "TUMBLE(TABLE purchases, DESCRIPTOR(time), INTERVAL '8' SECOND, INTERVAL '-3' SECOND)",
        Window(8_000_000, 8_000_000, 5_000_000),
    ),
    ("HOP(TABLE purchases, DESCRIPTOR(time), INTERVAL '4' SECOND, INTERVAL '8' SECOND)", HOPPING),
    (
        "HOP(TABLE purchases, DESCRIPTOR(time), INTERVAL '4' SECOND, INTERVAL '8' SECOND, INTERVAL '5' SECOND)",
        Window(8_000_000, 4_000_000, 1_000_000),
    ),
    (
        "Hop(data => TABLE(purchases), timecol => DESCRIPTOR(time), dur => INTERVAL '8' SECONDS,"
        " hopsize => INTERVAL '4' SECONDS)",
        HOPPING,
    ),
    (
        "HOP(SIZE => INTERVAL '8' SECOND, SLIDE => INTERVAL '4' SECOND, TIMECOL => DESCRIPTOR(time),"
        " DATA => TABLE purchases)",
        HOPPING,
    ),
    ("purchases [SESSION 8 SECONDS]", SESSION),
    ("purchases AS p [session INTERVAL '8' SECOND]", SESSION),
    ("purchases [SESSION 1 MICROSECOND] p", SessionWindow(1)),
    ("SESSION(TABLE purchases, DESCRIPTOR(time), INTERVAL '8' SECOND)", SESSION),
    ("TABLE(Session(TABLE(purchases), DESCRIPTOR(TIME), 8 SECONDS)) AS p", SESSION),
    ("SESSION(data => TABLE purchases, timecol => DESCRIPTOR(time), gap => INTERVAL '8' SECONDS)", SESSION),
    ("SESSION(DUR => INTERVAL '8' SECONDS, TIMECOL => DESCRIPTOR(time), DATA => TABLE purchases)", SESSION),
]


@pytest.mark.parametrize(("source", "window"), WINDOWS)
def test_windows(source: str, window: Window | SessionWindow) -> None:
    query = aggregation(f"SELECT COUNT(*) AS n FROM {source}")
    assert query.window == window
    assert [o.name for o in query.outputs] == ["window_start", "window_end", "n"]


def described(query: Aggregation) -> tuple[list[str], list[str], dict[str, str], str | None]:
    """Return keys, measures, outputs and HAVING as texts; the window's bounds are left out where they come first."""
    outputs = {o.name: str(o.expression) for o in query.outputs}
    if list(outputs)[:2] == ["window_start", "window_end"]:
        assert outputs.pop("window_start") == "window_start"
        assert outputs.pop("window_end") == "window_end"
    having = None if query.having is None else str(query.having)
    return [str(k) for k in query.keys], [m.name for m in query.measures], outputs, having


AGGREGATIONS = [
    (
        "SELECT gem_pack, SUM(price) AS revenue FROM purchases [RANGE 8 SECONDS SLIDE 4 SECONDS]"
        " WHERE gem_pack > 3 GROUP BY gem_pack",
        (["gem_pack"], ["sum(price)"], {"gem_pack": "key0", "revenue": "sum(price)"}, None),
    ),
    (
        "SELECT window_start, window_end, gem_pack, SUM(price) AS revenue"
        " FROM HOP(TABLE purchases, DESCRIPTOR(time), INTERVAL '4' SECOND, INTERVAL '8' SECOND)"
        " WHERE gem_pack > 3 GROUP BY window_start, window_end, gem_pack",
        (["gem_pack"], ["sum(price)"], {"gem_pack": "key0", "revenue": "sum(price)"}, None),
    ),
    (
        "SELECT SUM(A.price) FROM purchases [RANGE 8 SECONDS] [SLICE 4 SECONDS] A WHERE A.price > 3"
        " GROUP BY A.gem_pack",
        (["gem_pack"], ["sum(price)"], {"sum(A.price)": "sum(price)"}, None),
    ),
    (
        "SELECT AVG(price) AS a FROM purchases [RANGE 8 SECONDS]",
        ([], ["sum(price)", "count(price)"], {"a": "/(sum(price), cast(count(price) as DOUBLE))"}, None),
    ),
    (
        "SELECT AVG(gem_pack) a, SUM(gem_pack) s FROM purchases [RANGE 8 SECONDS]",
        (
            [],
            ["sum(gem_pack)", "count(gem_pack)"],
            {
                "a": "/(cast(sum(gem_pack) as DOUBLE), cast(count(gem_pack) as DOUBLE))",
                "s": "sum(gem_pack)",
            },
            None,
        ),
    ),
    (
        "SELECT COUNT(*), COUNT(1) AS one, COUNT(name) FROM purchases [RANGE 8 SECONDS]",
        (
            [],
            ["count(*)", "count(name)"],
            {"count(*)": "count(*)", "one": "count(*)", "count(name)": "count(name)"},
            None,
        ),
    ),
    (
        "SELECT MAX(price) - MIN(price * 2) AS spread FROM purchases [RANGE 8 SECONDS] HAVING COUNT(*) > 2",
        (
            [],
            ["max(price)", "min(*(price, 2.0))", "count(*)"],
            {"spread": "-(max(price), min(*(price, 2.0)))"},
            ">(count(*), 2)",
        ),
    ),
    (
        "SELECT UPPER(name) AS n, gem_pack + 1 AS next FROM purchases [RANGE 8 SECONDS] GROUP BY n, gem_pack",
        (["upper(name)", "gem_pack"], [], {"n": "key0", "next": "+(key1, 1)"}, None),
    ),
    (
        "SELECT gem_pack % 2 AS odd, COUNT(*) n FROM purchases [RANGE 8 SECONDS] GROUP BY 1",
        (["%(gem_pack, 2)"], ["count(*)"], {"odd": "key0", "n": "count(*)"}, None),
    ),
    (
        "SELECT gem_pack % 2 = 0 AS even FROM purchases [RANGE 8 SECONDS] GROUP BY gem_pack % 2, gem_pack % 2",
        (["%(gem_pack, 2)"], [], {"even": "=(key0, 0)"}, None),
    ),
    (
        "SELECT MIN(window_start) AS s, SUM(price) AS p FROM purchases [RANGE 8 SECONDS] GROUP BY window_end",
        ([], ["sum(price)"], {"s": "window_start", "p": "sum(price)"}, None),
    ),
    (
        "SELECT SUM(price) AS p, window_end FROM purchases [RANGE 8 SECONDS] EMIT AFTER WATERMARK",
        (
            [],
            ["sum(price)"],
            {"window_start": "window_start", "p": "sum(price)", "window_end": "window_end"},
            None,
        ),
    ),
    (
        "SELECT MAX(name) m, MIN(day) d, MAX(time) t FROM purchases [RANGE 8 SECONDS]"
        " HAVING MAX(name) IS NOT NULL AND window_end > '2026-01-01'",
        (
            [],
            ["max(name)", "min(day)", "max(time)"],
            {"m": "max(name)", "d": "min(day)", "t": "max(time)"},
            "and(not(is_null(max(name))), >(window_end, TIMESTAMP '2026-01-01T00:00:00'))",
        ),
    ),
    (
        "SELECT STDDEV_SAMP(price), stddev(price) AS same, STDDEV(amount * 2) AS d FROM purchases [RANGE 8 SECONDS]"
        " HAVING VAR_SAMP(gem_pack) > 1 OR VARIANCE(gem_pack) IS NULL",
        (
            [],
            ["stddev_samp(price)", "stddev_samp(*(amount, 2) as DECIMAL(12,2))", "var_samp(gem_pack)"],
            {
                "stddev_samp(price)": "stddev_samp(price)",
                "same": "stddev_samp(price)",
                "d": "stddev_samp(*(amount, 2) as DECIMAL(12,2))",
            },
            "or(>(var_samp(gem_pack), 1.0), is_null(var_samp(gem_pack)))",
        ),
    ),
    (
        "SELECT COUNT(DISTINCT price), count(distinct name || '!') AS n, COUNT(DISTINCT (ok)) * 2 AS o, COUNT(price) c"
        " FROM purchases [RANGE 8 SECONDS] HAVING COUNT(DISTINCT price) > 1",
        (
            [],
            ["count_distinct(price)", "count_distinct(concat(name, '!'))", "count_distinct(ok)", "count(price)"],
            {
                "count(DISTINCT price)": "count_distinct(price)",
                "n": "count_distinct(concat(name, '!'))",
                "o": "*(count_distinct(ok), 2)",
                "c": "count(price)",
            },
            ">(count_distinct(price), 1)",
        ),
    ),
    (
        "SELECT MIN(DISTINCT price) a, MAX(DISTINCT price) b, MIN(price) c, SUM(ALL price) d"
        " FROM purchases [RANGE 8 SECONDS]",
        (
            [],
            ["min(price)", "max(price)", "sum(price)"],
            {"a": "min(price)", "b": "max(price)", "c": "min(price)", "d": "sum(price)"},
            None,
        ),
    ),
    (
        "SELECT COUNT(*) FILTER (WHERE ok) AS a, COUNT_IF(ok) AS b, SUM(price) FILTER (WHERE price > 5) / 2 AS c,"
        " COUNT(DISTINCT name) FILTER (WHERE ok) AS d FROM purchases [RANGE 8 SECONDS]",
        (
            [],
            [
                "count(case(ok, 1, NULL))",
                "sum(case(>(price, 5.0), price, NULL))",
                "count_distinct(case(ok, name, NULL))",
            ],
            {
                "a": "count(case(ok, 1, NULL))",
                "b": "count(case(ok, 1, NULL))",
                "c": "/(sum(case(>(price, 5.0), price, NULL)), 2.0)",
                "d": "count_distinct(case(ok, name, NULL))",
            },
            None,
        ),
    ),
    (
        "SELECT COUNT(*) FILTER (WHERE TRUE) AS n FROM purchases [RANGE 8 SECONDS]",
        ([], ["count(*)"], {"n": "count(*)"}, None),
    ),
    (
        "SELECT window_end, user_id AS u, COUNT(*) AS n, window_start FROM purchases [SESSION 5 SECONDS]"
        " GROUP BY u, window_start, window_end",
        (
            ["user_id"],
            ["count(*)"],
            {"window_end": "window_end", "u": "key0", "n": "count(*)", "window_start": "window_start"},
            None,
        ),
    ),
]


@pytest.mark.parametrize(("sql", "expected"), AGGREGATIONS)
def test_aggregations(sql: str, expected: tuple[list[str], list[str], dict[str, str], str | None]) -> None:
    assert described(aggregation(sql)) == expected


def test_a_column_called_like_a_key_is_not_mistaken_for_one() -> None:
    sql = "CREATE STREAM s (key0 INT, b INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    catalog = {"s": define(sql, "s-9")}
    query = plan_select("SELECT b, SUM(key0) AS k FROM s [RANGE 1 SECOND] GROUP BY b", catalog)
    assert isinstance(query, Aggregation)
    assert described(query)[2] == {"b": "key0", "k": "sum(key0)"}
    with pytest.raises(Exception, match="Column 'key0' must stand in GROUP BY"):
        plan_select("SELECT key0, COUNT(*) FROM s [RANGE 1 SECOND] GROUP BY b", catalog)


@pytest.mark.parametrize(
    ("select", "having"),
    [
        ("SELECT COUNT(*) AS n {} HAVING n > 1", "COUNT(*) > 1"),
        ("SELECT COUNT(*) AS n {} HAVING N + n > 1", "COUNT(*) + COUNT(*) > 1"),
        ('SELECT AVG(price) AS "Mean price" {} HAVING "mean price" > 1', "AVG(price) > 1"),
        ("SELECT gem_pack AS g, SUM(price) {} GROUP BY g HAVING g > 1", "gem_pack > 1"),
        ("SELECT gem_pack % 2 AS h, SUM(price) {} GROUP BY h HAVING h + 1 > 1", "gem_pack % 2 + 1 > 1"),
        ("SELECT gem_pack % 2 AS h, SUM(price) AS s {} GROUP BY h HAVING h = s", "gem_pack % 2 = SUM(price)"),
        # a column goes first
        ("SELECT gem_pack AS g, SUM(price) AS gem_pack {} GROUP BY g HAVING gem_pack > 1", "g > 1"),
        ("SELECT COUNT(*) AS n, MAX(price) AS n2 {} HAVING n < n2", "COUNT(*) < MAX(price)"),
    ],
)
def test_having_takes_aliases(select: str, having: str) -> None:
    plain, _, _ = select.partition(" HAVING ")
    window = "FROM purchases [RANGE 8 SECONDS]"
    assert aggregation(select.format(window)) == aggregation(f"{plain} HAVING {having}".format(window))


def test_types_of_outputs() -> None:
    items = (
        "SUM(gem_pack) a, SUM(price) b, SUM(amount) c, COUNT(*) d, AVG(gem_pack) e, MAX(day) f, MAX(gem_pack) g,"
        " COUNT(DISTINCT name) h, STDDEV_SAMP(gem_pack) i, VAR_SAMP(amount) j"
    )
    query = aggregation(f"SELECT {items} FROM purchases [RANGE 8 SECONDS]")
    types = [str(o.expression.type) for o in query.outputs]
    assert types == [
        "TIMESTAMP", "TIMESTAMP", "BIGINT", "DOUBLE", "DECIMAL(38,2)", "BIGINT", "DOUBLE", "DATE", "INT",
        "BIGINT", "DOUBLE", "DOUBLE",
    ]  # fmt: skip


def test_create_query_and_explain_plan_as_their_select() -> None:
    select = "SELECT price FROM purchases"
    assert plan(f"CREATE QUERY q AS {select}") == plan(f"EXPLAIN {select};") == plan(select)
    assert plan_select(parse_statement(select), CATALOG) == plan(select)


@pytest.mark.parametrize(
    ("partitioning", "grouping"),
    [
        ("PARTITION BY user_id", "user_id"),
        ("PARTITION BY user_id", "window_start, window_end, USER_ID"),
        ("PARTITION BY purchases.user_id", "u"),
        ("PARTITION BY (user_id)", "1"),
        ("PARTITION BY (gem_pack, user_id)", "user_id, gem_pack"),
        ('PARTITION BY gem_pack, "user_id"', "user_id, gem_pack"),
        ("PARTITION BY user_id, gem_pack, user_id", "gem_pack, window_end, user_id"),
        ("", "user_id, name || '!', window_start"),
    ],
)
def test_a_session_is_partitioned_by_what_it_is_grouped_by(partitioning: str, grouping: str) -> None:
    def grouped(source: str) -> Aggregation:
        return aggregation(f"SELECT user_id AS u, COUNT(*) AS n FROM {source} GROUP BY {grouping}")

    expected = grouped("purchases [SESSION 5 SECONDS]")
    for source in (
        f"SESSION(TABLE purchases {partitioning}, DESCRIPTOR(time), INTERVAL '5' SECOND)",
        f"SESSION(TABLE(purchases) {partitioning}, DESCRIPTOR(time), INTERVAL '5' SECOND)",
        f"SESSION(data => TABLE purchases {partitioning}, timecol => DESCRIPTOR(time), gap => 5 SECONDS)",
        f"SESSION(gap => 5 SECONDS, timecol => DESCRIPTOR(time), data => TABLE purchases {partitioning})",
    ):
        assert grouped(source) == expected


EVERY = [
    *(f"SELECT price FROM purchases WHERE {condition}" for condition, _ in CONDITIONS),
    *(f"SELECT COUNT(*) FROM {source}" for source, _ in WINDOWS),
    *(sql for sql, _ in AGGREGATIONS),
]


@pytest.mark.parametrize("sql", EVERY)
def test_queries_survive_json(sql: str) -> None:
    query: Query = plan(sql)
    assert query_from_json(json.loads(json.dumps(query.to_json()))) == query


def test_long_lists_and_conjunctions_are_fine() -> None:
    members = ", ".join(str(i) for i in range(10_000))
    assert selection(f"SELECT price FROM purchases WHERE gem_pack IN ({members})").where is not None
    conditions = " AND ".join(f"price <> {i}" for i in range(1_000))
    assert selection(f"SELECT price FROM purchases WHERE {conditions}").where is not None
