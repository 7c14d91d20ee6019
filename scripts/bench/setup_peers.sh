#!/usr/bin/env bash
# Installs the programs we compare with (PyTorch, DeepSpeed, transformers, Lightning) from PyPI into .deps/peers, a
# virtual environment that the project itself never uses. Prints its python. Idempotent.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
peers=$root/.deps/peers
complete=$peers/.complete-3  # a new number when the list below changes
if [ ! -e "$complete" ]; then
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet --disable-pip-version-check \
    torch==2.11.0 deepspeed==0.19.8 transformers accelerate lightning==2.5.5 expecttest safetensors numpy >&2
  touch "$complete"
fi
echo "$peers/bin/python"
