#!/usr/bin/env bash
# Makes a fresh Debian 12 machine able to build dsrun, and builds it: Debian packages, LibTorch,
# configure, build. Idempotent: when nothing has to be done it returns in well under a second.
#
#   scripts/setup.sh                 into build/
#   BUILD_DIR=build-asan scripts/setup.sh -DDS_SANITIZE=address,undefined    other folder, more options
#
# LibTorch comes from $LIBTORCH or $Torch_DIR when one is set, else from the torch wheel on PyPI, which is
# unpacked into .deps/libtorch (ignored by git).
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
build_dir=${BUILD_DIR:-build}
libtorch_dir=.deps/libtorch

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 2; }

missing_packages() {
  # One dpkg-query for all: the names that are not installed.
  comm -23 <(sort scripts/debian-packages.txt) \
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
  missing=$(missing_packages)
  [ -z "$missing" ] && return
  if [ "$(id -u)" -ne 0 ]; then
    fail "these Debian packages are missing; install them and call this again:
  sudo apt-get install -y --no-install-recommends $(echo $missing)"
  fi
  say "installing Debian packages:" $missing
  export DEBIAN_FRONTEND=noninteractive
  keep_services_down
  apt-get update -qq >&2
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $missing >&2
  case " $missing " in
    *openssh-server*) systemctl disable ssh.service >/dev/null 2>&1 || true ;;
  esac
}

fetch_libtorch() {
  [ -n "${LIBTORCH:-}" ] || [ -n "${Torch_DIR:-}" ] && return
  [ -e "$libtorch_dir/.complete-$torch_version" ] && return
  say "fetching LibTorch $torch_version from PyPI into $libtorch_dir (about 550 MB, once)"
  rm -rf "$libtorch_dir"
  mkdir -p "$libtorch_dir"
  # --no-deps: CPU ranks need only libcudart and libcupti beside the wheel, which libtorch_cpu.so links.
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --target "$libtorch_dir" \
    "torch==$torch_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 >&2 ||
    fail "LibTorch could not be fetched. Set LIBTORCH to a LibTorch folder, or check the network."
  touch "$libtorch_dir/.complete-$torch_version"
}

configure_and_build() {
  if [ ! -e "$build_dir/build.ninja" ] || [ $# -gt 0 ]; then
    say "configuring $build_dir"
    cmake -G Ninja -S . -B "$build_dir" "$@" >"$build_dir.configure.log" 2>&1 || {
      cat "$build_dir.configure.log" >&2
      fail "configure failed"
    }
    mv "$build_dir.configure.log" "$build_dir/configure.log"
  fi
  # ninja -n costs a fraction of a second; say something only when there is work.
  if ! ninja -C "$build_dir" -n | grep -q 'no work to do'; then
    say "building $build_dir (the first time takes some minutes)"
    ninja -C "$build_dir" >&2
  fi
}

install_packages
fetch_libtorch
configure_and_build "$@"
