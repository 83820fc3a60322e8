#!/usr/bin/env bash
# Install what tests need besides .venv, side by side: helm and what the chart is checked with, unless BRAID_SKIP_HELM is
# set, and servers and a browser. Exits 1 when helm cannot be had.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tests/kit/install.sh &
servers=$!
status=0
[[ -n ${BRAID_SKIP_HELM:-} ]] || { bash helm/install-helm.sh && bash tests/helm/install-operator-models.sh; } || status=1
wait "$servers"
exit "$status"
