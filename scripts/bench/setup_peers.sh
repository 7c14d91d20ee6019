#!/usr/bin/env bash
# Installs the programs we compare with (PyTorch, DeepSpeed, Hugging Face's trainers, Lightning), and the tools that
# make a wheel, from PyPI into .deps/peers, a virtual environment that the project's programs never use. Prints its
# python. Idempotent.
#
#   scripts/bench/setup_peers.sh            where $DSRUN_PEERS_DIR names a folder they lie there (5 GB), once for
#                                           all checkouts of this machine, and .deps/peers is a link
#   scripts/bench/setup_peers.sh --check    installs nothing: status 1 unless all of them are there
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
list=5  # a new number when the list below changes
peers=$root/.deps/peers
complete=$peers/.complete-$list
tools=1  # a new number when only the tools below change: they are added to an environment that is there
with_tools=$peers/.tools-$tools

if [ "${1:-}" != --check ] && [ ! -e "$complete" ]; then
  place=$peers
  mkdir -p "$root/.deps"
  if [ -n "${DSRUN_PEERS_DIR:-}" ]; then
    mkdir -p "$DSRUN_PEERS_DIR"
    place=$(cd "$DSRUN_PEERS_DIR" && pwd)/peers-$list
    if [ -e "$peers" ] && [ ! -L "$peers" ]; then
      ls "$peers"/.complete-* >/dev/null 2>&1 || { echo "$peers is not of this script: move it away" >&2; exit 1; }
      rm -rf "$peers"  # an older list's
    fi
    ln -sfn "$place" "$peers"
  fi
  exec 9>"$place.lock"
  flock 9  # another checkout may be at it
  if [ ! -e "$complete" ]; then
    python3 -m venv "$place"
    # Of Hugging Face's packages these releases: tests compare their logs, which were recorded with them.
    "$place/bin/pip" install --quiet --disable-pip-version-check \
      torch==2.11.0 deepspeed==0.19.8 transformers==5.24.0 accelerate==1.15.0 trl==1.16.0 peft==0.21.2 \
      datasets==5.2.0 lightning==2.5.5 expecttest safetensors numpy >&2
    touch "$complete"
  fi
fi
# What scripts/make_wheel.py needs.
if [ "${1:-}" != --check ] && [ ! -e "$with_tools" ]; then
  exec 9>"$(readlink -f "$peers").lock"
  flock 9
  if [ ! -e "$with_tools" ]; then
    "$peers/bin/pip" install --quiet --disable-pip-version-check scikit-build-core==1.1.2 wheel==0.48.0 >&2
    touch "$with_tools"
  fi
fi
if [ ! -e "$complete" ] || [ ! -e "$with_tools" ]; then
  echo "the peers are not there; scripts/bench/setup_peers.sh installs them" >&2
  exit 1
fi
echo "$peers/bin/python"
