#!/bin/bash
# The long form of run.sh, for a night: every test at its full length, 1,000,000 seeds of the simulators, every way to leave a
# locked schedule a hundred times, 300 faults under a training, one job on 32 daemons, one on a tree of 65, one on two emulated
# machines with RDMA, one of which is killed, 10,000 steps with device memory of a fake GPU, 2,000,000 collectives without a name,
# ten minutes for each fuzzer, clang-tidy over every file, every file compiled by itself, and every test again and again under the
# sanitizers, with launcher, tools and tests instrumented, too.
#
#   RUEDA_SIM_SEEDS=1000000 FUZZ_SECONDS=3600 REPEAT=20 tests/long.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=lib.sh
. ./tests/lib.sh

export RUEDA_TEST_TIER=long
export RUEDA_DEVIATIONS="${RUEDA_DEVIATIONS:-100}"
export RUEDA_DAEMONS="${RUEDA_DAEMONS:-32}" RUEDA_STEPS="${RUEDA_STEPS:-200}" RUEDA_ALL_LAYOUTS=1
export RUEDA_GROWTH_STEPS="${RUEDA_GROWTH_STEPS:-10000}" RUEDA_CALLS="${RUEDA_CALLS:-2000000}"
export CHAOS_FAULTS="${CHAOS_FAULTS:-300}"
export RUEDA_SIM_SEEDS="${RUEDA_SIM_SEEDS:-1000000}"
readonly fuzz_seconds="${FUZZ_SECONDS:-600}"
readonly repeat="${REPEAT:-5}"

mkdir -p build
begin_account
stage packages
deploy/packages.sh build runtime test lint
run_lint --all
# Compiling each source by itself shows whether it includes what it uses.
build_target=all build_preset debug || true
if build_preset release -UCMAKE_CUDA_ARCHITECTURES; then
  test_preset release test --timeout 7200 --repeat "until-fail:$repeat"
  if build_preset asan -DRUEDA_INSTRUMENT_ALL=ON; then
    test_preset asan test --timeout 7200 -LE "^(nosan|noasan)\$" --repeat "until-fail:$repeat"
  fi
  if build_preset tsan; then test_preset tsan test --timeout 7200 -LE "^(nosan|notsan)\$" --repeat "until-fail:$repeat"; fi
  run_fuzzers "$fuzz_seconds"
fi
finish long
