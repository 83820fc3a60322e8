#!/usr/bin/env bash
# Install what knows the objects of the Prometheus Operator into .tools/operator-models: a test of the chart asks it for
# their schemas. Not into .venv, since it brings a pytest plugin. What cannot be had is said, and the test is skipped.
set -uo pipefail

packages=(cloudcoil==0.6.0 cloudcoil-models-prometheus-operator==0.80.1.0)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=$root/.tools/operator-models
stamp=$target/.installed

[[ -f $stamp && $(cat "$stamp") == "${packages[*]}" ]] && exit 0
rm -rf "$target"
if "$root/.venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --target "$target" "${packages[@]}" >&2; then
  echo "${packages[*]}" >"$stamp"
else
  echo "operator-models: they cannot be installed; the test of objects of the Prometheus Operator will be skipped" >&2
fi
exit 0
