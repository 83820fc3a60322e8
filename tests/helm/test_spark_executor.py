"""Run helm/spark-executor.sh as an executor's pod would, first with a stand-in for Java, then for a real driver."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helm_binary import ROOT

SCRIPT = ROOT / "helm" / "spark-executor.sh"
DRIVER = Path(__file__).with_name("executor_driver.py")
POD = "braid-exec-7"
WAIT_SECONDS = 180


def environment(**more: str) -> dict[str, str]:
    """Return what Spark says in the environment of an executor's pod."""
    said = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@braid.svc:7078",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": POD,
    }
    python = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if name in {"HOME", "JAVA_HOME"}}
    return {**kept, "PATH": f"{python}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", **said, **more}


def test_what_spark_says_becomes_arguments_in_order(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!{shutil.which("bash")}\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn{number}=a b;$HOME" for number in range(12)}
    said = environment(JAVA_HOME=str(tmp_path), SPARK_CLASSPATH="/more/*", **options)
    done = subprocess.run([SCRIPT, "executor"], env=said, capture_output=True, text=True, timeout=60, check=True)
    arguments = done.stdout.splitlines()
    assert arguments[:12] == list(options.values())
    assert arguments[12:15] == ["-Xms512m", "-Xmx512m", "-cp"]
    more, jars = arguments[15].split(":")
    assert more == "/more/*"
    assert list(Path(jars).parent.glob("spark-kubernetes_*.jar"))
    assert arguments[16] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    flags = dict(zip(arguments[17::2], arguments[18::2], strict=True))
    assert flags == {
        "--driver-url": said["SPARK_DRIVER_URL"],
        "--executor-id": "7",
        "--cores": "1",
        "--app-id": "spark-1",
        "--hostname": "127.0.0.1",
        "--resourceProfileId": "0",
        "--podName": POD,
    }


def test_missing_variable_is_an_error() -> None:
    said = environment()
    del said["SPARK_DRIVER_URL"]
    done = subprocess.run([SCRIPT], env=said, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "SPARK_DRIVER_URL" in done.stderr


@pytest.mark.service
@pytest.mark.long
def test_executor_runs_tasks_of_a_driver(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "executor.log").open("w+b"))
        driver = stack.enter_context(
            subprocess.Popen([sys.executable, DRIVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path)
        )
        stack.callback(driver.kill)
        assert driver.stdout is not None
        told = json.loads(driver.stdout.readline())
        said = environment(
            SPARK_DRIVER_URL=f"spark://CoarseGrainedScheduler@127.0.0.1:{told['port']}",
            SPARK_APPLICATION_ID=told["application"],
        )
        executor = stack.enter_context(
            subprocess.Popen([SCRIPT, "executor"], env=said, stdout=log, stderr=log, cwd=tmp_path)
        )
        stack.callback(executor.kill)
        result, _ = driver.communicate(timeout=WAIT_SECONDS)
        executor.wait(WAIT_SECONDS)
        log.seek(0)
        assert json.loads(result) == {"ran_on": [POD, "of the driver"]}, log.read()
