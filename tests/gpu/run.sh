#!/bin/bash
# What can only be done on a machine with a GPU: CUDA's part of the conformance suite, and the bench. Leaves what
# they say in a folder. Ends with 77 where there is no GPU.
#
#   tests/gpu/run.sh [FOLDER]                                  builds what it needs, from the tree
#   RUEDA_GPU_BIN=there/bin tests/gpu/run.sh [FOLDER]          runs what was built elsewhere, with lib beside bin
#
# In a bundle (deploy/bundle.sh) what was built is beside this script's folder, and is used.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
readonly root
readonly out="${1:-$root/build/gpu-results}"
readonly programs=(gpu_test gpu_conformance_test rueda-gpu-bench)
if [ -z "${RUEDA_GPU_BIN:-}" ] && [ -x "$root/bin/gpu_conformance_test" ]; then
  RUEDA_GPU_BIN="$root/bin"
fi

if [ -z "${RUEDA_GPU_BIN:-}" ]; then
  # FOLDER may be relative to where the caller is.
  (
    cd "$root"
    deploy/packages.sh build
    cmake --preset release -DRUEDA_CUDA=ON
    cmake --build --preset release --target rueda_cuda "${programs[@]}"
  )
  RUEDA_GPU_BIN="$root/build/release/bin"
fi
export RUEDA_GPU_BIN
readonly suite="$out/conformance.txt"
mkdir -p "$out"

"$RUEDA_GPU_BIN/gpu_test" >"$out/tests.txt" || { cat "$out/tests.txt"; exit 1; }
"$RUEDA_GPU_BIN/gpu_conformance_test" --gtest_filter='*/cuda' >"$suite" || { cat "$suite"; exit 1; }
if grep -q '\[  SKIPPED \]' "$suite"; then
  grep -m 1 -A 1 ': Skipped' "$suite" || true
  # A driver that is there and does not work is no reason to skip anything.
  if [ -e /proc/driver/nvidia/version ]; then
    echo "$0: there is a driver, and CUDA's tests were skipped" >&2
    exit 1
  fi
  echo "$0: skipped: there is no GPU" >&2
  exit 77
fi
tail -n 2 "$suite"
"$root/bench/gpu/run.sh" "$out"
echo "results are in $out"
