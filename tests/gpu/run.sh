#!/bin/bash
# What can only be done on a machine with a GPU: CUDA's part of the conformance suite, and the bench. Leaves what
# they say in a folder.
#
#   tests/gpu/run.sh [FOLDER]                                  builds what it needs, from the tree
#   RUEDA_GPU_BIN=there/bin tests/gpu/run.sh [FOLDER]          runs what was built elsewhere, with lib beside bin
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly out="${1:-build/gpu-results}"
readonly programs=(gpu_test gpu_conformance_test rueda-gpu-bench)
mkdir -p "$out"

if [ -z "${RUEDA_GPU_BIN:-}" ]; then
  deploy/packages.sh build
  cmake --preset release -DRUEDA_CUDA=ON
  cmake --build --preset release --target rueda_cuda "${programs[@]}"
fi
readonly bin="${RUEDA_GPU_BIN:-build/release/bin}"
readonly suite="$out/conformance.txt"

"$bin/gpu_test" >"$out/tests.txt" || { cat "$out/tests.txt"; exit 1; }
"$bin/gpu_conformance_test" --gtest_filter='*/cuda' >"$suite" || { cat "$suite"; exit 1; }
if grep -q '\[  SKIPPED \]' "$suite"; then
  grep -m 1 -A 1 ': Skipped' "$suite" || true
  echo "$0: CUDA's tests were skipped" >&2
  exit 1
fi
tail -n 2 "$suite"
"$bin/rueda-gpu-bench" | tee "$out/bench.txt"
"$bin/rueda-gpu-bench" --json >"$out/bench.json"
echo "results are in $out"
