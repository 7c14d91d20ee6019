#!/usr/bin/env bash
# Sets everything up when that is needed, then runs the built dsrun with the arguments given:
#
#   scripts/run.sh --hostfile hostfile_examples/localhost --num_gpus 8 train
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/setup.sh"
exec "$root/${BUILD_DIR:-build}/bin/dsrun" "$@"
