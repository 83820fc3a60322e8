"""`braid queries`, `braid drop`, `braid explain` and `braid sql`."""

from __future__ import annotations

import json

import pytest

from braid.api.cli.queries import REASONS
from braid.session.state import waiting
from tests.api.cli.playback import PLAN, Braid, Playback, answer

SQL = "SELECT user_id\n  FROM purchases"


@pytest.fixture(autouse=True)
def three_queries(service: Playback, monkeypatch: pytest.MonkeyPatch, braid: Braid) -> None:  # noqa: ARG001
    """Register q-1 (named cheap) and q-2, q-3 (both named twice), and point the commands at them."""
    monkeypatch.setenv("BRAID_URL", service.url)
    for name in ("cheap", "twice", "twice"):
        service.add_query({"sql": SQL, "name": name})


def test_queries_are_listed_over_all_pages(braid: Braid) -> None:
    lines = braid("queries").stdout.splitlines()
    assert lines[0].split() == ["id", "name", "state", "rows", "deployed", "in", "latency", "sql"]
    assert lines[1].split() == ["q-1", "cheap", "RUNNING", "0", "0.84", "s", "-", *SQL.split()]
    assert len(lines) == 4


def test_a_list_says_why_queries_have_no_rows_where_some_have_none(service: Playback, braid: Braid) -> None:
    service.queries["q-2"]["waiting_for"] = {"reason": "watermark", "detail": "…"}
    lines = braid("queries").stdout.splitlines()
    assert "why no rows" in lines[0]
    assert "its window is not over" in lines[2]
    assert "its window" not in lines[1] + lines[3]


def test_a_list_says_that_rows_do_not_get_to_a_sink(service: Playback, braid: Braid) -> None:
    assert "sink" not in braid("queries").stdout.splitlines()[0]
    service.queries["q-2"]["delivery"] = {"state": "RETRYING", "error": f"down {'x ' * 100}"}
    service.queries["q-3"]["delivery"] = {"state": "DELIVERING", "error": None}
    lines = braid("queries").stdout.splitlines()
    assert "sink" in lines[0].split()
    assert "RETRYING: down x x" in lines[2]
    assert "x …" in lines[2]
    assert "DELIVERING" in lines[3]


def test_finished_queries_are_listed_by_their_names(service: Playback, braid: Braid) -> None:
    service.add_query({"sql": SQL})
    for query_id in ("q-1", "q-4"):
        service.queries[query_id]["state"] = "FINISHED"
    result = braid("queries")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["q-1", "q-2", "q-3"]
    assert result.stderr == "1 more, retired, finished without a name, or of subqueries: braid queries --all\n"
    assert "q-4" in braid("queries", "--all").stdout


def test_there_are_words_for_each_reason() -> None:
    assert REASONS.keys() == set(waiting.REASONS)


def test_queries_as_json_are_whole(service: Playback, braid: Braid) -> None:
    printed = [json.loads(line) for line in braid("queries", "--json").stdout.splitlines()]
    assert printed == list(service.queries.values())


def test_queries_are_chosen_by_state_and_label(service: Playback, braid: Braid) -> None:
    result = braid("queries", "--state", "retired", "--label", "team=ads")
    assert result.stdout == "no such query\n"
    assert service.last().query == {"state": "RETIRED", "label": "team=ads"}
    assert braid("queries", "--state", "RETIRED", "--json").stdout == ""


def test_drop_retires_by_id_and_by_name(service: Playback, braid: Braid) -> None:
    assert braid("drop", "q-2").stdout == "query q-2 is RETIRED\n"
    assert service.asked("DELETE", "/queries/q-2")[0].query == {"drain": "true"}
    assert braid("drop", "cheap", "--no-drain").stdout == "query q-1 is RETIRED\n"
    assert service.asked("DELETE", "/queries/cheap")[0].query == {"drain": "false"}
    assert braid("drop", "twice").stdout == "query q-3 is RETIRED\n", "the service says which query has a name"


def test_drop_says_what_goes_with_it(service: Playback, braid: Braid) -> None:
    service.add_query({"sql": "SELECT n FROM cheap", "name": "over_cheap"})
    service.add_query({"sql": "SELECT n FROM cheap"})
    result = braid("drop", "cheap", "--cascade")
    assert (result.stdout, result.stderr) == ("query q-1 is RETIRED\n", "with it: over_cheap, q-5\n")
    assert braid("drop", "--stream", "purchases", "--cascade").stderr == "with it: twice, twice\n"
    assert braid("drop", "--stream", "purchases", "--cascade").stderr == "", "nothing goes a second time"


@pytest.mark.parametrize(("operator", "is_windowed"), [("aggregation:s-1:k", True), ("selection:s-1", False)])
def test_replace_says_which_rows_the_new_query_sees(
    service: Playback, braid: Braid, operator: str, is_windowed: bool
) -> None:
    begins = {"purchases": "2026-01-01T00:00:04Z", "sales": None}
    query = {"id": "q-9", "state": "RUNNING", "replaces": "q-1", "active_from": begins, "operator": operator}
    service.play(answer(query, 201))
    result = braid("replace", "cheap", "SELECT 1")
    assert service.last().query["drain"] == "true"
    assert result.stdout == "query q-9 is RUNNING; it replaces q-1, whose rows are there: braid results q-1\n"
    said = "It sees what is later than 2026-01-01T00:00:04Z (purchases). A window that was open then has only those,"
    assert result.stderr == f"{said} and is marked `_partial`.\n" * is_windowed


def test_drop_of_what_is_not_there_is_refused(braid: Braid) -> None:
    result = braid("drop", "nothing")
    assert result.exit_code == 1
    assert "There is no query 'nothing'." in result.stderr


def test_drop_of_a_stream_as_a_query_says_what_to_write(braid: Braid) -> None:
    result = braid("drop", "Purchases")
    assert result.exit_code == 1
    assert result.stderr == "Error: Purchases is a stream: braid drop --stream Purchases\n"


@pytest.mark.parametrize("kind", ["stream", "table"])
def test_drop_of_streams_and_tables(service: Playback, braid: Braid, kind: str) -> None:
    assert braid("drop", f"--{kind}", "purchases").stdout == f"dropped the {kind} purchases\n"
    assert (service.last().method, service.last().path) == ("DELETE", f"/{kind}s/purchases")
    result = braid("drop", "busy", f"--{kind}")
    assert result.exit_code == 1
    assert "409 Conflict" in result.stderr


def test_explain_draws_the_plan_of_a_query(braid: Braid) -> None:
    lines = braid("explain", "cheap").stdout.splitlines()
    assert lines[0].startswith("purchases")
    assert lines[1].lstrip("└─ ").startswith("aggregate by gem_pack")
    assert json.loads(braid("explain", "q-1", "--json").stdout) == PLAN
    assert braid("explain", "q-1", "--format", "dot").stdout == "digraph { s1 -> q-1 }\n"


@pytest.mark.parametrize("text", [SQL, f"EXPLAIN {SQL}", f"\nexplain\n{SQL}"])
def test_explain_of_a_text_registers_nothing(service: Playback, braid: Braid, text: str) -> None:
    result = braid("explain", text)
    assert service.last().path == "/queries/validate"
    assert service.last().json == {"sql": SQL}
    assert "operator  aggregate" in result.stdout
    assert "aggregate by gem_pack" in result.stdout
    assert len(service.queries) == 3
    assert json.loads(braid("explain", text, "--json").stdout)["plan"] == PLAN


def test_a_query_that_is_over_is_said_to_be(service: Playback, braid: Braid) -> None:
    service.play(answer({**service.add_query({"sql": SQL}), "state": "FINISHED"}))
    assert braid("drop", "q-9").stdout == (
        "query q-9 is FINISHED already: nothing runs, and its rows go after their retention\n".replace("q-9", "q-4")
    )


def test_an_sql_text_that_a_shell_has_cut_is_told_to_be_quoted(braid: Braid) -> None:
    result = braid("query", "SELECT", "price", "FROM", "purchases")
    assert result.exit_code == 2
    assert 'Put the SQL in quotes: "SELECT …".' in result.stderr
    assert "quotes" not in braid("streams", "a", "b").stderr


def test_sql_prints_what_the_statement_gives(service: Playback, braid: Braid) -> None:
    assert braid("sql", "CREATE STREAM …").stdout == "stream purchases is declared\n"
    assert service.last().json == {"sql": "CREATE STREAM …"}
    service.play(answer({"streams": [{"name": "a"}, {"name": "b"}]}))
    assert [line.split() for line in braid("sql", "SHOW STREAMS").stdout.splitlines()] == [
        ["name", "connector"],
        ["a", "-"],
        ["b", "-"],
    ]
    registered = service.add_query({"sql": SQL})
    service.play(answer(registered))
    assert braid("sql", SQL).stdout == (
        f"query {registered['id']} is RUNNING; `braid results {registered['id']} --follow` prints its rows,"
        f" `braid drop {registered['id']}` retires it\n"
    )
    service.play(answer({"queries": [registered], "cursor": None}))
    listed = braid("sql", "SHOW QUERIES").stdout.splitlines()
    assert listed[0].split() == ["id", "name", "state", "rows", "deployed", "in", "latency", "sql"]
    service.play(answer({"queries": [{"id": "q-1"}], "cursor": None}))
    assert braid("sql", "SHOW QUERIES", "--json").stdout == '{"id": "q-1"}\n'
    service.play(answer([]))
    assert braid("sql", "SHOW QUERIES").stdout == "nothing there\n"
    service.play(answer({"tables": []}))
    assert braid("sql", "SHOW TABLES").stdout == "no table is declared yet\n"
    service.play(answer({**PLAN, "queries": 3, "streams": ["purchases", "offers"]}))
    explained = braid("sql", "EXPLAIN …;").stdout
    assert "aggregate by gem_pack" in explained
    assert "streams  purchases, offers\n" in explained
    service.play(answer(registered))
    described = [line.split(maxsplit=1) for line in braid("sql", "DESCRIBE cheap;").stdout.splitlines()]
    assert ["id", registered["id"]] in described
    assert ["sql", "SELECT user_id"] in described, "its lines are below one another"
    service.play(answer(PLAN))
    assert json.loads(braid("sql", "EXPLAIN …", "--json").stdout) == PLAN


def test_a_graph_without_nodes_and_edges_is_printed_as_it_is(service: Playback, braid: Braid) -> None:
    graph = {"nodes": {"operator": ["q-1"]}}
    service.play(answer(graph))
    assert json.loads(braid("explain", "q-1").stdout) == graph
