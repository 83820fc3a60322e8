"""What is told to Spark for each kind of master, and the home that executors on one machine get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from braid.engine.spark.masters import (
    cores_of,
    has_executors,
    is_local_cluster,
    is_one_machine,
    lay_out_home,
    options_of,
    scaled_options,
    with_retries,
)


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,5]", 3),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,3,1024]", 6),
        ("local-cluster[ 2, 3, 1024 ]", 6),
        ("spark://host:7077", None),
        ("k8s://https://host", None),
    ],
)
def test_a_master_says_how_many_tasks_run_at_once_unless_only_the_cluster_knows(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores


@pytest.mark.parametrize(
    ("master", "retried"),
    [("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2,7]", "local[2,7]"), ("yarn", "yarn")],
)
def test_tasks_of_a_local_master_are_tried_again_unless_it_says_how_often(master: str, retried: str) -> None:
    assert with_retries(master) == retried


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_a_local_master_has_no_executors_to_tell_anything(master: str) -> None:
    assert not has_executors(master)
    assert options_of(master) == scaled_options(master, 2) == {}
    assert is_one_machine(master)
    assert not is_local_cluster(master)


def test_executors_on_one_machine_get_the_memory_and_the_cores_that_the_master_names() -> None:
    options = options_of("local-cluster[2,3,512]")
    assert options["spark.executor.memory"] == "512m"
    assert options["spark.cores.max"] == "6"
    assert is_one_machine("local-cluster[2,3,512]")


def test_executors_elsewhere_find_the_packages_and_their_size_is_the_clusters() -> None:
    options = options_of("spark://host:7077")
    assert (Path(options["spark.executorEnv.PYTHONPATH"]) / "engine" / "spark" / "masters.py").exists()
    assert "spark.executor.memory" not in options
    assert not is_one_machine("spark://host:7077")


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://host:7077", "k8s://https://host", "yarn"])
def test_executors_that_come_and_go_end_their_tasks_first(master: str) -> None:
    assert has_executors(master)
    assert scaled_options(master, 2) == {"spark.decommission.enabled": "true", "spark.executor.instances": "2"}


def test_a_home_is_linked_anew_and_keeps_the_folder_of_the_newest_start_only(tmp_path: Path) -> None:
    spark, home = tmp_path / "spark", tmp_path / "home"
    (spark / "jars").mkdir(parents=True)
    lay_out_home(home, tmp_path / "other-spark")
    for start in ("app-1", "app-2", "app-3"):
        (home / "work" / start / "0").mkdir(parents=True)
    lay_out_home(home, spark)
    assert (home / "jars").readlink() == spark / "jars"
    assert [folder.name for folder in (home / "work").iterdir()] == ["app-3"]
    assert (home / "work" / "app-3" / "0").is_dir()


def test_a_home_links_to_the_installation_also_where_it_is_laid_out_once_more(tmp_path: Path) -> None:
    spark, home = tmp_path / "spark", tmp_path / "home"
    for folder in ("bin", "jars", "python/lib"):
        (spark / folder).mkdir(parents=True)
    lay_out_home(home, spark)
    lay_out_home(home, home)
    assert (home / "bin").readlink() == spark / "bin"
    assert not (home / "python").exists(), "processes would take PySpark from its archive"
