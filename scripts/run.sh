#!/usr/bin/env bash
# Sets up and builds the programs when that is needed, then runs dsrun with the arguments given:
#
#   scripts/run.sh --hostfile hostfile_examples/localhost --num_gpus 8 train
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/setup.sh" --programs
exec "$root/${BUILD_DIR:-build}/bin/dsrun" "$@"
