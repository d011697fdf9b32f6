#!/bin/bash
# From a fresh Debian 12 machine to the main job, in one command: installs what is missing, builds, and
# trains a classifier of handwritten digits with two node daemons on this machine and two training
# processes each. Safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly build_dir=build/release
readonly log=build/quickstart.log
readonly targets=(ruedad ruedarun ruedactl rueda-bench rueda)

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

begin() { printf '%s==> %s%s\n' "$bold" "$1" "$plain"; }

# run_step WHAT COMMAND...: the output goes to the log, which is shown when the command fails.
run_step() {
  local what="$1" started="$SECONDS"
  shift
  begin "$what"
  if ! "$@" >>"$log" 2>&1; then
    tail -n 40 "$log" >&2
    printf '\nquickstart: this failed: %s\nThe whole log is in %s.\n' "$*" "$log" >&2
    exit 1
  fi
  printf '    %d s\n' $((SECONDS - started))
}

# A compiler that meets the gRPC headers takes up to 1 GB.
count_jobs() {
  local available_kb
  available_kb="$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)"
  if [ "$available_kb" -lt $((4 * 1024 * 1024)) ]; then echo 1; else nproc; fi
}

# Several checkouts share what ccache holds.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

mkdir -p build
: >"$log"

run_step "installing the Debian packages that are missing" deploy/packages.sh build runtime
run_step "configuring $build_dir" cmake --preset release
jobs="$(count_jobs)"
run_step "building with $jobs jobs (minutes the first time; progress is in $log)" \
  cmake --build --preset release --parallel "$jobs" --target "${targets[@]}"

begin "training on handwritten digits: 2 node daemons, 4 processes"
started="$SECONDS"
PYTHONPATH="$PWD/client/python${PYTHONPATH:+:$PYTHONPATH}" \
  RUEDA_LIBRARY="$PWD/$build_dir/lib/librueda.so" \
  "$build_dir/bin/ruedarun" -np 4 --virtual-nodes 2 \
  /usr/bin/python3 deploy/quickstart_rank.py client/python/examples/digits.py --check-reference || {
  status=$?
  printf 'quickstart: the training job failed with exit code %d, see above\n' "$status" >&2
  exit "$status"
}
printf '    %d s\n' $((SECONDS - started))

cat <<END
${bold}Done in $SECONDS s.${plain} Next:
  the same job, shaped as you like    export PYTHONPATH=client/python RUEDA_LIBRARY=$build_dir/lib/librueda.so
                                      $build_dir/bin/ruedarun -np 4 /usr/bin/python3 client/python/examples/digits.py
  how fast this machine's ring is     $build_dir/bin/ruedarun -np 4 --virtual-nodes 2 $build_dir/bin/rueda-bench allreduce
  the tests                           ./tests/run.sh
  daemons for a cluster               deploy/systemd, deploy/kubernetes
END
