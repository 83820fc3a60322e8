#!/usr/bin/env bash
# Run a Spark executor in this container: what the pod template of the chart starts.
#
# Spark says all it needs in the environment of the pod; the argument "executor", which it adds for its own image, is
# left alone. Arguments: none that count. Exits with what the executor exits with.
set -euo pipefail

jars=$(python -c 'import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec("pyspark").origin).parent / "jars")')

java_options=()
number=0
name=SPARK_JAVA_OPT_0
while [[ -n ${!name+set} ]]; do
  java_options+=("${!name}")
  number=$((number + 1))
  name=SPARK_JAVA_OPT_$number
done

exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${java_options[@]}" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
