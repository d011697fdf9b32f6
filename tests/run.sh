#!/bin/bash
# Installs what is missing, builds, and runs the tests: as they are, under the address and
# undefined-behaviour sanitizers, under the thread sanitizer, and the fuzzers for a moment.
#
#   tests/run.sh            everything; some 40 minutes on 2 cores from a clean checkout
#   tests/run.sh --quick    the release build and its tests that are not slow
#   tests/run.sh --torch2   torch.distributed on PyTorch 2 from PyPI (tests/torch/torch2.sh: a download of 3 GB, which is
#                           kept), and PyTorch's own tests on it and on Debian's
#
# Ends with the line "N passed, M failed", summed over all builds; the exit code is 0 when M is 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=lib.sh
. ./tests/lib.sh

quick=false
torch2=false
case "${1:-}" in
  "") ;;
  --quick) quick=true ;;
  --torch2) torch2=true ;;
  *)
    echo "tests/run.sh: unknown argument '$1'; there are only --quick and --torch2" >&2
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

if $torch2; then
  if build_preset release; then
    debian="$(tests/torch/torch1.sh)"
    RUEDA_TEST_PYTHON="$(tests/torch/torch2.sh)"
    export RUEDA_TEST_PYTHON
    test_preset release -R "^(distributed_test|distributed_examples_test|device_torch_test)$"
    for python in "$debian" "$RUEDA_TEST_PYTHON"; do
      say "PyTorch's own tests with $python ($SECONDS s so far)"
      if tests/torch/run.sh build/release "$python"; then
        passed=$((passed + 1))
      else
        note_failure "PyTorch's own tests with $python"
      fi
    done
  fi
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
