#!/bin/bash
# Tables of what one GPU does, in Markdown: reductions beside copies, each as a ratio to the rate of copies that was
# measured in the same run, and how long small ones take. Ends with 77 where there is no GPU.
#
#   bench/gpu/run.sh [FOLDER]        what was built is in build/release/bin, or where RUEDA_GPU_BIN says
#
# Writes FOLDER/bench.md and FOLDER/bench.json (build/gpu-results).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
readonly root
readonly out="${1:-$root/build/gpu-results}"
built="$root/build/release/bin"
if [ -x "$root/bin/rueda-gpu-bench" ]; then built="$root/bin"; fi  # a bundle (deploy/bundle.sh)
readonly bin="${RUEDA_GPU_BIN:-$built}"
readonly table="$out/bench.md"

driver() {
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null ||
    head -n 1 /proc/driver/nvidia/version 2>/dev/null || echo "no driver that says its version"
}

if [ ! -x "$bin/rueda-gpu-bench" ]; then
  echo "$0: there is no $bin/rueda-gpu-bench; build it, or set RUEDA_GPU_BIN" >&2
  exit 1
fi
mkdir -p "$out"
trap 'rm -f "$table.new"' EXIT

# The limit of k ranks is k reads and k writes of all bytes at the rate of a copy on the device.
large=(--bytes "67108864,1073741824" --ranks "2,4,8" --segments "1,161")
small=(--bytes "8,64,512,4096,65536" --ranks "2,4,8" --segments 1 --dtypes float32 --rounds 25)
{
  echo "# Reductions on one GPU"
  echo
  echo "$(driver), $(date -u +%F)"
  echo
  echo "## Rate, beside that of copies"
  echo
  "$bin/rueda-gpu-bench" --markdown "${large[@]}"
  echo
  echo "## Latency: from the call to the counter that says that it is done, one process, an idle GPU"
  echo
  "$bin/rueda-gpu-bench" --markdown "${small[@]}"
} >"$table.new"
mv "$table.new" "$table"
"$bin/rueda-gpu-bench" --json "${large[@]}" >"$out/bench.json"
cat "$table"
