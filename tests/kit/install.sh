#!/usr/bin/env bash
# Install the servers that tests speak to and the browser that tests of the page look with, where that may be done:
# ClickHouse and Chromium from Debian's packages, Apache Kafka by mvn and Prometheus out of Debian's package into
# ~/.cache/braid. What cannot be had is said, and its tests are skipped.
set -uo pipefail

version=3.9.1
prometheus=${BRAID_TEST_PROMETHEUS:-$HOME/.cache/braid/prometheus}
jars=${BRAID_TEST_KAFKA_JARS:-$HOME/.cache/braid/kafka-$version}

say() { printf 'servers: %s\n' "$*" >&2; }

can_apt_install() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

apt_install() {
  can_apt_install || return 1
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

if ! command -v clickhouse-server >/dev/null; then
  say "installing ClickHouse"
  apt_install clickhouse-server || say "ClickHouse cannot be installed; its tests will be skipped"
fi

if ! command -v chromium >/dev/null; then
  say "installing Chromium"
  apt_install chromium || say "Chromium cannot be installed; the tests of the page will be skipped"
fi

# unpacked and not installed, so that no service of the system is started
fetch_prometheus() {
  local work package
  command -v apt-get >/dev/null || return 1
  work=$(mktemp -d)
  chmod 755 "$work"
  (cd "$work" && { apt-get download prometheus || { can_apt_install && apt-get update -qq && apt-get download prometheus; }; }) \
    >/dev/null 2>&1
  package=$(compgen -G "$work/prometheus_*.deb") && mkdir -p "$prometheus" && dpkg-deb -x "$package" "$prometheus"
  local status=$?
  rm -rf "$work"
  return $status
}

if ! command -v prometheus >/dev/null && [[ ! -x $prometheus/usr/bin/prometheus ]]; then
  say "fetching Prometheus"
  fetch_prometheus || say "Prometheus cannot be had; its tests will be skipped"
fi

if ! compgen -G "$jars/kafka_*.jar" >/dev/null; then
  command -v mvn >/dev/null || apt_install maven
  say "fetching Apache Kafka $version"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cat >"$work/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion><groupId>braid</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
  </dependencies>
</project>
POM
  if command -v mvn >/dev/null &&
    (cd "$work" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$work/jars" >/dev/null); then
    mkdir -p "$(dirname "$jars")"
    rm -rf "$jars"
    mv "$work/jars" "$jars"
  else
    say "Apache Kafka cannot be had; its tests will be skipped"
  fi
fi
exit 0
