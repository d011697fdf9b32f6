#!/bin/bash
# Writes tables of what one GPU does, in Markdown: reductions beside copies, each as a ratio to the rate of copies that was
# measured in the same run, and how long small reductions take; then the same for whole jobs, from a client's call on, with
# processes that share the GPU, on one node and on two. Ends with 77 where there is no GPU. Where MPS runs, the tables are made
# with MPS, and say so. Otherwise the tables of small reductions, and of a load beside them, are made once more with an MPS that
# this script starts, if there is a nvidia-cuda-mps-control.
#
#   bench/gpu/run.sh [FOLDER]        what was built is in build/release/bin, or where RUEDA_GPU_BIN says
#
# Writes FOLDER/bench.md, FOLDER/jobs.md, FOLDER/jobs-mps.md and FOLDER/bench.json (build/gpu-results).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
readonly root
readonly out="${1:-$root/build/gpu-results}"
built="$root/build/release/bin"
if [ -x "$root/bin/rueda-gpu-bench" ]; then built="$root/bin"; fi  # a bundle (deploy/bundle.sh)
readonly bin="${RUEDA_GPU_BIN:-$built}"
readonly table="$out/bench.md" jobs="$out/jobs.md" with_mps="$out/jobs-mps.md"

driver() {
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null ||
    head -n 1 /proc/driver/nvidia/version 2>/dev/null || echo "no driver that says its version"
}

# The name of MPS's processes is longer than what the kernel keeps of it.
runs_mps() { grep -qsx nvidia-cuda-mps /proc/[0-9]*/comm; }

# Prints the head of a table: head_of_table TITLE...
head_of_table() {
  echo "# $*"
  echo
  echo "$(driver), $(if runs_mps; then echo with MPS; else echo without MPS; fi), $(date -u +%F)"
  echo
}

if [ ! -x "$bin/rueda-gpu-bench" ]; then
  echo "$0: there is no $bin/rueda-gpu-bench; build it, or set RUEDA_GPU_BIN" >&2
  exit 1
fi
mkdir -p "$out"
trap 'rm -f "$table.new" "$jobs.new"' EXIT

# The limit of k ranks is the time of k reads and k writes of all bytes at the rate of a copy on the device.
large=(--bytes "67108864,1073741824" --ranks "2,4,8" --segments "1,161")
small=(--bytes "8,64,512,4096,65536" --ranks "2,4,8" --segments 1 --dtypes float32 --rounds 25)
{
  head_of_table "Reductions on one GPU"
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

# Tells whether the daemons' GPU workers will find an NCCL.
has_nccl() { [ -n "${RUEDA_NCCL_LIBRARY:-}" ] || PATH="$PATH:/sbin" ldconfig -p | grep 'libnccl\.so\.2 ' >/dev/null; }

# Prints a table of rueda-gpu-job-bench's: job RANKS NODES WORDS...
job() {
  echo
  "$bin/ruedarun" --no-prefix -np "$1" --virtual-nodes "$2" "$bin/rueda-gpu-job-bench" "${@:3}" || wrong+=("$*")
}

# Prints the tables that show what a neighbour that computes changes.
beside() {
  echo "## Small ones"
  for ranks in 2 4 8; do job "$ranks" 1 latency; done
  echo
  echo "## Small ones, beside a load in the other process"
  job 2 1 latency --load
}

wrong=()
{
  head_of_table "All-reduces of device memory by jobs"
  echo "## Large ones on one node: the limit is as many reads and writes as the ranks have, at the rate of copies"
  for ranks in 2 4 8; do job "$ranks" 1 rate; done
  echo
  echo "## Two nodes on this GPU: the limit is a bare program's copies and TCP over loopback"
  job 2 2 rate
  echo
  echo "## The same, where the GPU adds up what arrives (--gpu-adds)"
  RUEDAD_GPU_ADDS=yes job 2 2 rate
  if has_nccl; then
    echo
    echo "## The same, through NCCL (--inter-node nccl): on one host and GPU it says little of a network"
    RUEDA_INTER_NODE=nccl job 2 2 rate
  fi
  echo
  beside
  echo
  echo "## The cache of allocations: none, and with frees announced (above: each use is checked with the driver)"
  for cache in none announced; do job 2 1 latency --bytes 8,65536 --cache "$cache"; done
  echo
  echo "## Ten thousand steps"
  job 2 1 growth --steps 10000
} >"$jobs.new"
mv "$jobs.new" "$jobs"
cat "$jobs"

# The machine's own MPS, if one runs, is left as it is. Otherwise an MPS of this script runs for as long as the second table
# takes.
if ! runs_mps && command -v nvidia-cuda-mps-control >/dev/null; then
  folder="$(mktemp -d)"
  export CUDA_MPS_PIPE_DIRECTORY="$folder" CUDA_MPS_LOG_DIRECTORY="$folder"
  trap 'echo quit | nvidia-cuda-mps-control >/dev/null 2>&1 || true; rm -rf "$table.new" "$jobs.new" "$with_mps.new" "$folder"' EXIT
  if nvidia-cuda-mps-control -d; then
    {
      head_of_table "All-reduces of device memory by jobs"
      beside
      echo
      echo "## Large ones on one node"
      for ranks in 2 4 8; do job "$ranks" 1 rate --bytes 67108864; done
    } >"$with_mps.new"
    mv "$with_mps.new" "$with_mps"
    cat "$with_mps"
  else
    wrong+=("nvidia-cuda-mps-control -d")
  fi
elif ! runs_mps; then
  echo "$0: no table with MPS: there is no nvidia-cuda-mps-control" >&2
fi
if [ ${#wrong[@]} -gt 0 ]; then
  printf '%s: failed: %s\n' "$0" "${wrong[@]}" >&2
  exit 1
fi
