#!/usr/bin/env bash
# Sets everything up when that is needed, then runs every test. Arguments go to ctest:
#
#   scripts/test.sh                    everything
#   scripts/test.sh -R unit.config     one test
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
python3 scripts/check_layers.py
python3 scripts/check_readmes.py
exec ctest --test-dir "${BUILD_DIR:-build}" --output-on-failure -j "$(nproc)" "$@"
