#!/bin/bash
# Installs what is missing, builds, and runs the tests: as they are, under the address and
# undefined-behaviour sanitizers, under the thread sanitizer, and the fuzzers for a moment.
#
#   tests/run.sh            everything, under 25 minutes on 2 cores from a clean checkout
#   tests/run.sh --quick    the release build and its tests that are not slow
#
# Ends with the line "N passed, M failed", summed over all builds; the exit code is 0 when M is 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=lib.sh
. ./tests/lib.sh

quick=false
case "${1:-}" in
  "") ;;
  --quick) quick=true ;;
  *)
    echo "tests/run.sh: unknown argument '$1'; there is only --quick" >&2
    exit 2
    ;;
esac

deploy/packages.sh build runtime test
mkdir -p build

if $quick; then
  build_preset release && test_preset release -LE "slow|long"
  finish
  exit
fi

if build_preset release; then
  test_preset release -LE long
  # Each sanitizer leaves out what runs none of our instrumented code, or cannot run with it: label nosan.
  export RUEDA_SIM_SEEDS="${RUEDA_SIM_SEEDS:-300}"  # ten times slower there
  for sanitizer in asan tsan; do
    if build_preset "$sanitizer"; then test_preset "$sanitizer" -LE "long|nosan|no$sanitizer"; fi
  done
  run_fuzzers 20
fi
finish
