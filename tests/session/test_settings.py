"""Settings: precedence, types, and refusals that name what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.session.settings import Settings
from braid.session.settings_sources import load_settings
from braid.sources.core.errors import ServiceError


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    (tmp_path / "braid.toml").write_text('port = 1\nmax_queries = 2\nlog_level = "debug"\ndrain_timeout = 5\n')
    environment = {"BRAID_PORT": "3", "BRAID_MAX_QUERIES": "4", "BRAID_URL": "http://127.0.0.1:8080"}
    settings = load_settings({"port": "5", "host": None}, environment)
    assert settings == Settings(port=5, max_queries=4, log_level="debug", drain_timeout=5)


def test_nothing_given_gives_the_defaults() -> None:
    assert load_settings({}, {}) == Settings()


def test_the_file_may_be_named_by_flag_or_environment(tmp_path: Path) -> None:
    by_flag, by_environment = tmp_path / "named.toml", tmp_path / "other.toml"
    by_flag.write_text("port = 1")
    by_environment.write_text("port = 2")
    environment = {"BRAID_CONFIG": str(by_environment)}
    assert load_settings({"config": str(by_flag)}, environment).port == 1
    assert load_settings({}, environment).port == 2


def test_spark_conf_is_a_table_of_the_file_or_an_object_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "braid.toml").write_text(
        '[spark_conf]\n"spark.executor.memory" = "4g"\nspark.executor.cores = 2\nspark.ui.enabled = true\n'
    )
    from_file = {"spark.executor.memory": "4g", "spark.executor.cores": "2", "spark.ui.enabled": "true"}
    assert load_settings({}, {}).spark_conf == from_file
    environment = {"BRAID_SPARK_CONF": '{"spark.executor.instances": 3}'}
    assert load_settings({}, environment).spark_conf == {"spark.executor.instances": "3"}


def test_a_child_process_gets_the_same_settings() -> None:
    settings = Settings(port=1, batch_target_seconds=0.25, spark_conf={"spark.executor.memory": 'a "b"=c'})
    environment = settings.to_environment()
    assert environment["BRAID_BATCH_TARGET_SECONDS"] == "0.25"
    assert environment["BRAID_LOG_LEVEL"] == "info"
    assert load_settings({}, environment) == settings
    assert "BRAID_ADMIN_KEY" not in Settings(admin_key="k" * 16).to_environment()


@pytest.mark.parametrize(
    ("flags", "environment", "file", "message"),
    [
        ({"prot": 1}, {}, "", "'prot'. Known are host, port"),
        ({}, {}, "prot = 1", "'prot'. Known are host, port"),
        ({}, {"BRAID_PORT": "tcp://10.0.0.1:80"}, "", "BRAID_PORT must be a whole number; got 'tcp://"),
        (
            {"drain_timeout": "soon"},
            {},
            "",
            "flag drain_timeout must be a number; got 'soon'",
        ),
        ({"master": "local[0]"}, {}, "", "master must have a core at least; got 'local[0]'"),
        ({}, {"BRAID_MASTER": "local-cluster[0,1,1024]"}, "", "master must have a core at least"),
        ({"port": 65536}, {}, "", "at most 65535; got 65536"),
        ({"port": True}, {}, "", "port must be a whole number 0 or more; got True"),
        ({"max_queries": 0}, {}, "", "max_queries must be a whole number above 0; got 0"),
        ({"retention_seconds": "nan"}, {}, "", "retention_seconds must be a number of seconds above 0"),
        ({"reoptimize_share": "0"}, {}, "", "reoptimize_share must be a number above 0; got 0.0"),
        ({"reoptimize_share": 1.5}, {}, "", "reoptimize_share must be at most 1; got 1.5"),
        (
            {},
            {},
            "changelog_batch_size = 1.5",
            "changelog_batch_size must be a whole number above 0; got 1.5",
        ),
        ({}, {}, "host = 1", "host must be a text that is not empty; got 1"),
        ({"executors_min": 3, "executors_max": 2}, {}, "", "executors_min must be at most executors_max, 2; got 3"),
        ({"executors_max": -1}, {}, "", "executors_max must be a whole number 0 or more; got -1"),
        (
            {"executors_max": 2},
            {"BRAID_SPARK_CONF": '{"spark.dynamicAllocation.enabled": "true"}'},
            "",
            "must leave out 'spark.dynamicAllocation.enabled' where executors_max is given",
        ),
        ({"query_sharing": "on"}, {}, "", "query_sharing must be one of auto, off; got 'on'"),
        ({"join_orders": "arbitrary"}, {}, "", "join_orders must be one of auto, off; got 'arbitrary'"),
        ({"log_level": "loud"}, {}, "", "one of debug, info, warning, error; got 'loud'"),
        ({}, {"BRAID_SPARK_CONF": "spark.ui.enabled=true"}, "", "BRAID_SPARK_CONF must be a JSON object"),
        ({}, {"BRAID_SPARK_CONF": "[1]"}, "", "spark_conf must be a table of names and values; got [1]"),
        ({}, {}, "spark_conf = 1", "spark_conf must be a table of names and values; got 1"),
        ({}, {}, "[spark_conf]\nexecutor.cores = 1", "begin with 'spark.'; got 'executor.cores'"),
        ({}, {}, "port =", "must be TOML"),
        ({"config": "missing.toml"}, {}, "", "must be readable; got 'missing.toml'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name_and_value(
    tmp_path: Path, flags: dict[str, object], environment: dict[str, str], file: str, message: str
) -> None:
    (tmp_path / "braid.toml").write_text(file)
    with pytest.raises(ServiceError) as refused:
        load_settings(flags, environment)
    assert message in refused.value.detail


def test_lists_are_texts_with_commas_or_lists(tmp_path: Path) -> None:
    (tmp_path / "braid.toml").write_text('allowed_hosts = ["a.example", "b.example"]')
    settings = load_settings({"allowed_origins": "*"}, {"BRAID_OUTGOING_ALLOW": "public, 10.0.0.0/8"})
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.allowed_origins == ("*",)
    assert settings.outgoing_allow == ("public", "10.0.0.0/8")
    assert load_settings({}, settings.to_environment()) == settings
    for wrong in ('"a"', "[1]", '[""]'):
        (tmp_path / "braid.toml").write_text(f"allowed_hosts = {wrong}")
        with pytest.raises(ServiceError, match="allowed_hosts must be a list"):
            load_settings({}, {})
    (tmp_path / "braid.toml").write_text("")
    with pytest.raises(ServiceError, match="setting outgoing_allow must be"):
        load_settings({}, {"BRAID_OUTGOING_ALLOW": "http://x"})
