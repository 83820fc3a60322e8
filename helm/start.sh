#!/usr/bin/env bash
# Run a command in a container of this image: start braid serve …
#
# tini reaps what the command leaves behind. numba must be able to write where compiled kernels are, so it gets a copy of
# those that the image has. Exits with what the command exits with.
set -euo pipefail

mkdir --parents "$NUMBA_CACHE_DIR"
cp --recursive --no-clobber /opt/braid/share/braid/kernels/. "$NUMBA_CACHE_DIR"
exec tini -- "$@"
