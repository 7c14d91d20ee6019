#!/usr/bin/env bash
# Checks the sources, sets everything up and builds it when that is needed, then runs every test, and says in the end
# which of them skipped themselves, which ctest counts as passed. Arguments go to ctest:
#
#   scripts/test.sh                    everything
#   scripts/test.sh --quick            the checks, the unit tests without LibTorch and the simulated jobs: builds no more
#   scripts/test.sh -R unit.config     one test
#   scripts/test.sh -C nightly -L nightly   what takes too long for every run
set -euo pipefail
cd "$(dirname "$0")/.."
targets=()
if [ "${1:-}" = --quick ]; then
  shift
  targets=(--target quick_tests)
  set -- -L quick "$@"
fi
scripts/setup.sh --packages scripts/debian-packages.txt
for check in layers readmes names dead comments limits removals format voice python; do
  python3 "scripts/check_$check.py"
done
scripts/setup.sh "${targets[@]}"
build_dir=${BUILD_DIR:-build}
status=0
# One more than there are cores: many tests wait for a daemon, a lease or a link.
ctest --test-dir "$build_dir" --output-on-failure -j "$(($(nproc) + 1))" "$@" || status=$?
# gtest names each twice, behind its run with the time it took; tests/support/requirement.py names it once.
skipped=$(sed -n -e 's/^\[  SKIPPED \] \(.*\) ([0-9]* ms)$/  \1/p' -e 's/^SKIPPED:* \(.*\)$/  \1/p' \
  "$build_dir/Testing/Temporary/LastTest.log")
if [ -n "$skipped" ]; then
  printf 'skipped here, each for the reason that its output gives (ctest -V -R NAME):\n%s\n' "$skipped"
fi
exit "$status"
