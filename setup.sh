#!/usr/bin/env bash
# Make this checkout ready to run: find Python and Java, build .venv, install what requirements.lock pins, compile kernels
# and archive the classes of Spark, so that starts need not.
#
# Safe to run again at any time, and quick when nothing changed: a stamp in .venv holds the hash of what was
# installed. PYTHON=/path/to/python picks the interpreter, JAVA_HOME the Java. Exits 1 with one sentence when
# something is missing.
set -euo pipefail
unset PYTHONDONTWRITEBYTECODE # without byte code every process compiles all that it imports

PYTHON_LEAST=3.11
JAVA_LEAST=17
UV=uv==0.13.9
JAVA_PACKAGES=(openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"
venv=$root/.venv
stamp=$venv/.braid-installed

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# True when dotted version $1 is $2 or newer.
at_least() { [[ -n $1 && $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

can_apt_install() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

# Install the first of the named packages that this Debian offers.
apt_install() {
  local package
  apt-get update -qq >&2 || return 1
  for package in "$@"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      say "installing $package"
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
      return
    fi
  done
  return 1
}

python_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

# Print the interpreter to build .venv with: $PYTHON, else the version the lock was made with, else the oldest other.
find_python() {
  local candidate version seen=""
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13 python3.14 python; do
    command -v "$candidate" >/dev/null || continue
    version=$(python_version "$candidate")
    if at_least "$version" "$PYTHON_LEAST"; then
      command -v "$candidate"
      return 0
    fi
    [[ -z $version ]] || seen="$seen${seen:+, }$candidate is $version"
  done
  fail "Python $PYTHON_LEAST or newer must be on PATH, got ${seen:-none}: \`apt-get install python3 python3-venv\`" \
    "(Debian 12 or newer) gives one, or set PYTHON to where it is."
}

# Print the major version of the Java at $1: 8 for "1.8.0_402", 17 for "17.0.15".
java_version() {
  "$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1 || true
}

# Print the Java that Spark will take: that of JAVA_HOME when it is set, else the one on PATH.
find_java() {
  if [[ -n ${JAVA_HOME:-} ]]; then
    printf '%s\n' "$JAVA_HOME/bin/java"
  else
    command -v java || true
  fi
}

check_java() {
  local java version
  java=$(find_java)
  if [[ -z $java ]] && can_apt_install; then
    say "there is no Java on PATH"
    apt_install "${JAVA_PACKAGES[@]}" || say "apt-get could not install it"
    hash -r
    java=$(find_java)
  fi
  [[ -n $java ]] || fail "Java $JAVA_LEAST or newer must be on PATH, got none: \`apt-get install ${JAVA_PACKAGES[0]}\` gives one."
  [[ -x $java ]] || fail "JAVA_HOME must be the folder of a Java $JAVA_LEAST or newer, got '$JAVA_HOME' without bin/java: correct or unset it."
  version=$(java_version "$java")
  at_least "$version" "$JAVA_LEAST" || fail "Java $JAVA_LEAST or newer must be used, got version ${version:-unknown} at $java:" \
    "\`apt-get install ${JAVA_PACKAGES[0]}\` gives one; set JAVA_HOME to it when several are installed."
}

# What .venv must be built from, as one hash: the pins, the project's metadata, where it lies, which Python and Java. The
# path of Python is no part of it: in an activated shell it is that of .venv.
fingerprint() {
  { cat requirements.lock pyproject.toml && printf '%s\n' "$root" "$(python_version "$1")" "$("$(find_java)" -version 2>&1)"; } |
    "$1" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}

# Build .venv with interpreter $1, also where Debian left out ensurepip.
build_venv() {
  local python=$1 version
  version=$(python_version "$python")
  if ! "$python" -c 'import ensurepip' 2>/dev/null && can_apt_install; then
    apt_install "python$version-venv" || true
  fi
  say "building .venv with $python ($version)"
  if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv --clear "$venv" >&2 || fail "building $venv with $python failed (see above)."
  elif "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --clear --without-pip "$venv" >&2 || fail "building $venv with $python failed (see above)."
    "$python" -m pip --python "$venv/bin/python" install -q pip >&2 ||
      fail "putting pip into $venv failed (see above): \`apt-get install python3-venv\` helps."
  else
    fail "$python must come with ensurepip or pip to build a virtual environment, and has neither:" \
      "\`apt-get install python3-venv\` (or python$version-venv) gives it."
  fi
}

# Install what requirements.lock pins: with uv, in a third of the time, else with pip, which may have an index of its own.
install_lock() {
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check)
  if ! "${pip[@]}" config list | grep -q index-url && "${pip[@]}" install -q "$UV" >&2; then
    "$venv/bin/uv" --system-certs pip install -q --python "$venv/bin/python" -r requirements.lock >&2 && return
    say "uv could not install it (see above); trying pip"
  fi
  "${pip[@]}" install -q -r requirements.lock >&2
}

install_python_packages() {
  local python wanted
  python=$(find_python)
  wanted=$(fingerprint "$python")
  if [[ -x $venv/bin/python && -f $stamp && $(cat "$stamp") == "$wanted" ]]; then
    return 0
  fi
  rm -f "$stamp"
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
    [[ $(python_version "$venv/bin/python") != "$(python_version "$python")" ]]; then
    build_venv "$python"
  fi
  say "installing what requirements.lock pins; the first time takes some minutes"
  install_lock ||
    fail "installing requirements.lock failed (see above): check the network and the free disk space, then run this again."
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps -e . >&2 ||
    fail "installing this checkout into $venv failed (see above)."
  say "compiling kernels and archiving the classes of Spark, so that starts need not"
  "$venv/bin/python" -m braid.engine.spark.prepare >&2 2>"$venv/prepare.log" ||
    fail "compiling the kernels in operators/kernels failed (see $venv/prepare.log)."
  "$venv/bin/python" -c 'import braid.api.serve, braid.bench_driver.demo' # for their byte code
  printf '%s\n' "$wanted" >"$stamp"
  say "done; \`source .venv/bin/activate\` puts \`braid\` on the path"
}

check_java
install_python_packages
