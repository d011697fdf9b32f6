#!/bin/bash
# Runs PyTorch's own tests of torch.distributed on Rueda.
#
#   tests/torch/run.sh BUILD_DIR PYTHON      PYTHON has PyTorch and expecttest
#
# Says how many tests passed, were skipped and failed, by the backend that they ask for and the number of ranks; the exit code is
# 0 when none failed.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
build="$(cd "$1" && pwd)"
python="$2"

folder="$(mktemp -d)"
trap 'kill "${daemon:-}" 2>/dev/null; wait; rm -rf "$folder"' EXIT

export RUEDA_SOCKET="$folder/ruedad.sock" RUEDA_LIBRARY="$build/lib/librueda.so" TMPDIR="$folder"
export PYTHONPATH="$here/../../client/python" PYTHONDONTWRITEBYTECODE=1
"$build/bin/ruedad" --private --node-id tests --listen-host 127.0.0.1 --socket "$RUEDA_SOCKET" \
  >"$folder/ruedad.log" 2>&1 &
daemon=$!

failed=0
run_tests() { # backend asked for, ranks, unittest's arguments...
  local log="$folder/$1-$2.log" code=0
  (cd "$folder" && BACKEND="$1" WORLD_SIZE="$2" "$python" "$here/pytorch_distributed.py" -v "${@:3}") \
    >"$log" 2>&1 || code=$?
  printf 'asked for as %s, %s ranks: %s\n' "$1" "$2" "$(tail -n 1 "$log")"
  if [ "$code" -ne 0 ]; then
    failed=1
    grep -E '^(ERROR|FAIL): ' "$log" || tail -n 40 "$log"
  fi
}

run_tests rueda 3
run_tests rueda 4
run_tests gloo 3
run_tests mpi 3 -k all_to_all
exit "$failed"
