#!/usr/bin/env bash
# Makes a fresh Debian 12 machine able to build dsrun, and builds it: Debian packages, LibTorch,
# configure, build. Idempotent: when nothing has to be done it returns in well under a second.
#
#   scripts/setup.sh                 everything, into build/
#   scripts/setup.sh --programs      no tests and no benchmarks
#   scripts/setup.sh --target NAME   one target of the build; may be repeated
#   scripts/setup.sh --packages FILE the Debian packages that FILE names and nothing else
#   BUILD_DIR=build-asan scripts/setup.sh --preset ci-asan    another folder, another preset of CMakePresets.json
#
# A new folder is configured with the preset (by default ci), and later keeps its settings. Further arguments go to
# CMake.
#
# What reads Parquet and Arrow files comes from the pyarrow wheel, in .deps/pyarrow; without a network it is left
# out. LibTorch comes from $LIBTORCH or $Torch_DIR when one is set, else from the torch wheel on PyPI, which is
# unpacked into .deps/libtorch (ignored by git). With -DDS_TORCH=OFF it is not needed.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
build_dir=${BUILD_DIR:-build}
preset=ci
libtorch_dir=.deps/libtorch
arrow_version=26.0.1
arrow_dir=.deps/pyarrow

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 2; }

missing_packages() {
  # One dpkg-query for all: the names that are not installed.
  comm -23 <(sort "$1") \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' | sort -u)
}

# The tests start their own sshd; nobody has asked for one that serves this machine. While Debian's hook is
# there, packages start no service; when openssh-server is new here it stays switched off, too.
keep_services_down() {
  local hook=/usr/sbin/policy-rc.d
  if [ ! -e "$hook" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$hook"
    chmod 755 "$hook"
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
}

install_packages() {
  local missing
  missing=$(missing_packages "$1")
  [ -z "$missing" ] && return
  if [ "$(id -u)" -ne 0 ]; then
    fail "these Debian packages are missing; install them and call this again:
  sudo apt-get install -y --no-install-recommends ${missing//$'\n'/ }"
  fi
  say "installing Debian packages: ${missing//$'\n'/ }"
  export DEBIAN_FRONTEND=noninteractive
  keep_services_down
  apt-get update -qq >&2
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $missing >&2
  case " $missing " in
    *openssh-server*) systemctl disable ssh.service >/dev/null 2>&1 || true ;;
  esac
}

# Removes a folder that a fetch of ours has filled, whole or in part, and makes it anew. Its mark says so; another
# folder of that name, or a link to one, is the user's.
make_anew() {
  if [ -e "$1" ] || [ -L "$1" ]; then
    [ ! -L "$1" ] && { [ -e "$1/.dsrun-fetched" ] || ls "$1"/.complete-* >/dev/null 2>&1; } ||
      fail "$1 is not a folder that this script has made: move it away"
    rm -rf "$1"
  fi
  mkdir -p "$1"
  touch "$1/.dsrun-fetched"
}

# Prints the value that a CMake variable has in this build: that of the arguments (-DNAME=VALUE), of the folder, or
# of the preset.
setting() {
  local name=$1 word value=
  shift
  for word; do
    if [[ $word == -D"$name"=* || $word == -D"$name":*=* ]]; then value=${word#*=}; fi
  done
  if [ -z "$value" ] && [ -e "$build_dir/CMakeCache.txt" ]; then
    value=$(sed -n "s/^$name:[A-Z]*=//p" "$build_dir/CMakeCache.txt")
  elif [ -z "$value" ]; then
    value=$(cmake -N --preset "$preset" | sed -n "s/^ *$name=\"\(.*\)\"$/\1/p")
  fi
  printf '%s\n' "$value"
}

fetch_libtorch() {
  [ -n "${LIBTORCH:-}${Torch_DIR:-}$(setting LIBTORCH "$@")" ] && return
  [ "$(setting DS_TORCH "$@")" = OFF ] && return
  [ -e "$libtorch_dir/.complete-$torch_version" ] && return
  say "fetching LibTorch $torch_version from PyPI into $libtorch_dir (about 550 MB, once)"
  make_anew "$libtorch_dir"
  # --no-deps: CPU ranks need only libcudart and libcupti beside the wheel, which libtorch_cpu.so links.
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --target "$libtorch_dir" \
    "torch==$torch_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 >&2 ||
    fail "LibTorch could not be fetched. Set LIBTORCH to a LibTorch folder, or check the network."
  touch "$libtorch_dir/.complete-$torch_version"
}

# Debian 12 has no Arrow; the wheel has its libraries with their headers, without Python.
fetch_arrow() {
  case " $* " in *" -DARROW="*) return ;; esac
  [ "$(setting DS_ARROW "$@")" = OFF ] && return
  [ -e "$arrow_dir/.complete-$arrow_version" ] && return
  say "fetching Arrow $arrow_version from PyPI into $arrow_dir (55 MB, once)"
  make_anew "$arrow_dir"
  if ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --retries 0 --timeout 20 --target "$arrow_dir" "pyarrow==$arrow_version" >&2; then
    say "Arrow could not be fetched: Parquet and Arrow files will not be read (-DDS_ARROW=OFF asks no more)"
    rm -rf "$arrow_dir"
    return
  fi
  touch "$arrow_dir/.complete-$arrow_version"
}

configure() {
  # A folder that is older than Arrow has no plugin, also where what came after its fetch was interrupted.
  [ -e "$build_dir/build.ninja" ] && [ $# -eq 0 ] &&
    [ ! "$arrow_dir/.complete-$arrow_version" -nt "$build_dir/build.ninja" ] && return
  say "configuring $build_dir"
  local settings=(-S .)
  [ -e "$build_dir/CMakeCache.txt" ] || settings=(--preset "$preset")
  cmake "${settings[@]}" -B "$build_dir" "$@" >"$build_dir.configure.log" 2>&1 || {
    cat "$build_dir.configure.log" >&2
    fail "configure failed"
  }
  mv "$build_dir.configure.log" "$build_dir/configure.log"
}

# Every run of ninja begins with a look for new sources; these lines of it are no steps that build something.
looks='Re-checking globbed directories|Re-running CMake'

# Reads ninja's output and shows how far it is: on a terminal one line that is rewritten every second,
# elsewhere a line every half a minute. Says nothing where there is nothing to build.
show_progress() {
  local line counts='' every=30 shown=$SECONDS started=$SECONDS now status
  [ -t 2 ] && every=1
  while true; do
    status=0
    IFS= read -r -t 1 line || status=$?
    if [ "$status" -eq 0 ]; then
      if [[ $line == '['*/*']'* && ! $line =~ $looks ]]; then
        [ -n "$counts" ] || say "building $build_dir (the first time takes some minutes)"
        counts=${line%%]*} && counts=${counts#[}
      fi
    elif [ "$status" -le 128 ]; then
      break  # the end; above 128 it is the second that has passed
    fi
    now=$SECONDS
    if [ -z "$counts" ] || [ $((now - shown)) -lt "$every" ]; then continue; fi
    shown=$now
    line=$(printf 'setup: building %s: %s files, %d:%02d' "$build_dir" "${counts/\// of }" \
      $(((now - started) / 60)) $(((now - started) % 60)))
    if [ -t 2 ]; then printf '\r\033[K%s' "$line" >&2; else printf '%s\n' "$line" >&2; fi
  done
  if [ -n "$counts" ] && [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

# Builds the ninja targets named; without names everything.
build() {
  local log=$build_dir/build.log started=$SECONDS
  NINJA_STATUS='[%f/%t] ' ninja -C "$build_dir" "$@" 2>&1 | tee "$log" | show_progress || {
    # What failed and why; other files may have been finished in between.
    { sed -n '/^FAILED: /,$p' "$log" | grep -v '^\[' || tail -n 20 "$log"; } | head -n 100 >&2 || true
    fail "the build failed; all of its output is in $log"
  }
  if awk -v looks="$looks" '/^\[/ && $0 !~ looks { built = 1 } END { exit !built }' "$log"; then
    say "built in $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s"
  fi
}

targets=()
while true; do
  case ${1:-} in
    --programs) targets+=(programs) && shift ;;
    --target) targets+=("$2") && shift 2 ;;
    --preset) preset=$2 && shift 2 ;;
    --packages)
      install_packages "$2"  # alone, so that a failure in it ends the script
      exit
      ;;
    *) break ;;
  esac
done
install_packages scripts/debian-packages.txt
fetch_libtorch "$@"
fetch_arrow "$@"
configure "$@"
build "${targets[@]}"
