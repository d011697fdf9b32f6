#!/bin/bash
# Tests what can only be tested on a machine with a GPU: CUDA's part of the conformance suite, jobs of processes that share the
# GPU and are killed, PyTorch's tensors and training where PyTorch has CUDA, and the benches. Leaves what they say in a folder.
# Ends with 77 where there is no GPU. RUEDA_TEST_PYTHON is a Python with numpy, and PyTorch (python3).
#
#   tests/gpu/run.sh [FOLDER]                                  builds what it needs, from the tree
#   RUEDA_GPU_BIN=there/bin tests/gpu/run.sh [FOLDER]          runs what was built elsewhere, with lib beside bin
#
# In a bundle (deploy/bundle.sh) the programs are beside this script's folder, and are used.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
readonly root
readonly out="${1:-$root/build/gpu-results}"
readonly programs=(gpu_test gpu_conformance_test rueda-gpu-bench rueda-gpu-job-bench ruedad ruedarun rueda)
if [ -z "${RUEDA_GPU_BIN:-}" ] && [ -x "$root/bin/gpu_conformance_test" ]; then
  RUEDA_GPU_BIN="$root/bin"
fi

if [ -z "${RUEDA_GPU_BIN:-}" ]; then
  # FOLDER may be relative to the caller's folder.
  (
    cd "$root"
    deploy/packages.sh build
    cmake --preset release -DRUEDA_CUDA=ON
    cmake --build --preset release --target rueda_cuda "${programs[@]}"
  )
  RUEDA_GPU_BIN="$root/build/release/bin"
fi
export RUEDA_GPU_BIN RUEDA_TEST_TIER=long
readonly suite="$out/conformance.txt"
mkdir -p "$out"

"$RUEDA_GPU_BIN/gpu_test" >"$out/tests.txt" || { cat "$out/tests.txt"; exit 1; }
"$RUEDA_GPU_BIN/gpu_conformance_test" --gtest_filter='*/cuda' >"$suite" || { cat "$suite"; exit 1; }
# Tests that need two GPUs are skipped where there is one, and those of communicators where there is no NCCL. GoogleTest begins
# the line of their number in the same way.
if grep -E '^\[  SKIPPED \] .*/cuda' "$suite" | grep -vE 'GpuPeer|GpuCommunicator' >/dev/null; then
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

export RUEDA_TEST_GPU=cuda RUEDA_TEST_PYTHON="${RUEDA_TEST_PYTHON:-python3}"
build="$(dirname "$RUEDA_GPU_BIN")"
failed=()

# compute-sanitizer, if there is one, checks what is touched on the GPU. Errors of calls are left out, because the suite provokes
# them, and so is the test of a sticky error, which touches what is not there.
sanitizer="$(PATH="$PATH:/usr/local/cuda/bin" command -v compute-sanitizer || true)"
if [ -n "$sanitizer" ]; then
  : >"$out/sanitizer.txt"
  for tool in memcheck racecheck synccheck; do
    echo "== $tool" >>"$out/sanitizer.txt"
    options=(--tool "$tool" --error-exitcode 9)
    if [ "$tool" = memcheck ]; then options+=(--report-api-errors no); fi
    if "$sanitizer" "${options[@]}" "$RUEDA_GPU_BIN/gpu_conformance_test" \
      --gtest_filter='*/cuda-*AStickyErrorIsEveryCallsError*' >>"$out/sanitizer.txt" 2>&1; then
      echo "sanitizer: $tool: $(grep 'ERROR SUMMARY' "$out/sanitizer.txt" | tail -n 1)"
    else
      failed+=("compute-sanitizer --tool $tool")
      grep -m 5 '^=========' "$out/sanitizer.txt" || true
    fi
  done
else
  echo "sanitizer: skipped: there is no compute-sanitizer in PATH or /usr/local/cuda/bin"
fi

# Tells whether the daemons' GPU workers will find an NCCL.
has_nccl() { [ -n "${RUEDA_NCCL_LIBRARY:-}" ] || PATH="$PATH:/sbin" ldconfig -p | grep 'libnccl\.so\.2 ' >/dev/null; }

# run_jobs NAME TEST: runs tests of jobs; their output goes to NAME.txt. All tests are run, whatever becomes of them.
run_jobs() {
  local test=("$root/$2")
  case "$2" in
    tests/integration/*) test=("$root/tests/integration/run.py" "$(basename "$2" .py)") ;;
  esac
  if "$RUEDA_TEST_PYTHON" "${test[@]}" "$build" "$root" >"$out/$1.txt" 2>&1; then
    echo "$1: $(tail -n 1 "$out/$1.txt")"
    grep "\.\.\. skipped '" "$out/$1.txt" | grep -v 'a fake GPU' || true
  else
    failed+=("$1")
    grep -E '^(FAIL|ERROR): ' "$out/$1.txt" || tail -n 20 "$out/$1.txt"
  fi
}

if "$RUEDA_TEST_PYTHON" -c 'import numpy'; then
  run_jobs jobs tests/integration/device/device_test.py
  run_jobs adds tests/integration/device/device_adds_test.py
  run_jobs rings tests/integration/device/device_rings_test.py
  if has_nccl; then
    run_jobs nccl tests/integration/device/device_nccl_test.py
  else
    echo "nccl: skipped: there is no libnccl.so.2, and RUEDA_NCCL_LIBRARY names none"
  fi
  run_jobs gpus tests/integration/device/device_gpus_test.py
  run_jobs containers tests/integration/device/device_containers_test.py
else
  echo "jobs, adds, rings, nccl, gpus, containers: skipped: $RUEDA_TEST_PYTHON has no numpy"
fi
if "$RUEDA_TEST_PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2>"$out/torch.txt"; then
  run_jobs torch tests/integration/device/device_torch_test.py
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True run_jobs torch-expandable tests/integration/device/device_torch_test.py
  mkdir -p "$out/timelines"
  RUEDA_TEST_TIMELINES="$(cd "$out/timelines" && pwd)" run_jobs training tests/gpu/training_test.py
  grep ' ms$' "$out/training.txt" || true
else
  echo "torch, torch-expandable, training: skipped: $RUEDA_TEST_PYTHON has no PyTorch with CUDA"
fi
"$root/bench/gpu/run.sh" "$out" || failed+=("bench/gpu/run.sh")
if [ ${#failed[@]} -gt 0 ]; then
  echo "$0: failed: ${failed[*]}; what they said is in $out" >&2
  exit 1
fi
echo "results are in $out"
