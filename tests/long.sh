#!/bin/bash
# The long form of run.sh, for a night: ten times the simulator seeds, ten minutes for each fuzzer, every
# way to leave a locked schedule a hundred times, one job on 32 daemons, one on a tree of 65, 10,000 steps with device memory
# of a fake GPU, and every test again and again under the sanitizers.
#
#   RUEDA_SIM_SEEDS=1000000 FUZZ_SECONDS=3600 REPEAT=20 tests/long.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=lib.sh
. ./tests/lib.sh

export RUEDA_SIM_SEEDS="${RUEDA_SIM_SEEDS:-1000000}"
export RUEDA_DEVIATIONS="${RUEDA_DEVIATIONS:-100}"
export RUEDA_DAEMONS="${RUEDA_DAEMONS:-32}" RUEDA_STEPS="${RUEDA_STEPS:-200}" RUEDA_ALL_LAYOUTS=1
export RUEDA_GROWTH_STEPS="${RUEDA_GROWTH_STEPS:-10000}"
readonly fuzz_seconds="${FUZZ_SECONDS:-600}"
readonly repeat="${REPEAT:-5}"

deploy/packages.sh build runtime test
mkdir -p build

if build_preset release; then
  test_preset release --timeout 7200 --repeat "until-fail:$repeat"
  for sanitizer in asan tsan; do
    if build_preset "$sanitizer"; then
      test_preset "$sanitizer" --timeout 7200 -LE "nosan|no$sanitizer" --repeat "until-fail:$repeat"
    fi
  done
  run_fuzzers "$fuzz_seconds"
fi
finish
