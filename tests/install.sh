#!/usr/bin/env bash
# Install what tests need besides .venv, side by side: servers and a browser, and what the chart is checked with. What
# cannot be had is said, and its tests are skipped.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tests/kit/install.sh &
bash tests/helm/install-operator-models.sh
wait
