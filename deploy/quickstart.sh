#!/bin/bash
# From a fresh Debian 12 machine to the main job, in one command: installs what is missing, builds what the job needs (the daemon,
# the launcher and the library) or takes a wheel that is there already, and trains a classifier of handwritten digits with two node
# daemons on this machine and two training processes each. Safe to run again.
#
#   deploy/quickstart.sh                 takes the newest wheel of this tree in dist/ if there is one, else builds
#   deploy/quickstart.sh --wheel FILE    takes this wheel
#   deploy/quickstart.sh --build         builds, whatever there is
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=progress.sh
. deploy/progress.sh

readonly build_dir=build/release
readonly wheel_dir=build/quickstart-wheel
readonly log=build/quickstart.log
readonly targets=(ruedad ruedarun rueda)

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

begin() { printf '%s==> %s%s\n' "$bold" "$1" "$plain"; }

die() {
  printf 'quickstart: %s\n' "$*" >&2
  exit 1
}

failed_step() {
  tail -n 40 "$log" >&2
  printf '\nquickstart: this failed: %s\nThe whole log is in %s.\n' "$*" "$log" >&2
  exit 1
}

# run_step WHAT COMMAND...: runs a command, whose output goes to the log, which is shown when the command fails.
run_step() {
  local what="$1" started="$SECONDS"
  shift
  begin "$what"
  "$@" >>"$log" 2>&1 || failed_step "$@"
  printf '    %d s\n' $((SECONDS - started))
}

# A compiler that reads the gRPC headers takes up to 1 GB.
count_jobs() {
  local available_kb
  available_kb="$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)"
  if [ "$available_kb" -lt $((4 * 1024 * 1024)) ]; then echo 1; else nproc; fi
}

build_from_source() {
  local jobs command started
  run_step "installing the Debian packages that are missing" deploy/packages.sh build runtime
  run_step "configuring $build_dir" cmake --preset release
  jobs="$(count_jobs)"
  command=(cmake --build --preset release --parallel "$jobs" --target "${targets[@]}")
  begin "building the daemon, the launcher and the library with $jobs jobs"
  started="$SECONDS"
  "${command[@]}" 2>&1 | tee -a "$log" | show_progress || failed_step "${command[@]}"
  printf '    %d s\n' $((SECONDS - started))
  export PYTHONPATH="$PWD/client/python${PYTHONPATH:+:$PYTHONPATH}" RUEDA_LIBRARY="$PWD/$build_dir/lib/librueda.so"
  ruedarun="$build_dir/bin/ruedarun"
}

# Prints the newest wheel in dist/ that this machine's Python can use, or nothing if there is none.
find_wheel() {
  [ -d dist ] || return 0
  find dist -maxdepth 1 -name "rueda-*-py3-none-*_$(uname -m).whl" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 |
    cut -d ' ' -f 2-
}

# Unpacks a wheel, which is an archive whose programs find their libraries beside themselves: nothing is installed.
unpack_wheel() {
  rm -rf "$wheel_dir"
  /usr/bin/python3 -m zipfile -e "$1" "$wheel_dir" && chmod +x "$wheel_dir"/rueda/bin/*
}

take_wheel() {
  local wheel="$1"
  [ -f "$wheel" ] || die "there is no file $wheel; pip wheel --no-deps -w dist . makes one"
  run_step "installing the Debian packages that are missing" deploy/packages.sh runtime
  /usr/bin/python3 -m zipfile -l "$wheel" 2>/dev/null | grep '^rueda/bin/ruedad ' >/dev/null ||
    die "$wheel is no wheel of the whole of Rueda: rueda/bin/ruedad is not in it; pip wheel --no-deps -w dist . makes one"
  run_step "taking $wheel, of $(date -r "$wheel" '+%d %B %Y, %H:%M') (--build builds this tree instead)" unpack_wheel "$wheel"
  "$wheel_dir/rueda/bin/ruedad" --version >>"$log" 2>&1 ||
    die "the programs in $wheel do not run on this machine; --build builds them. See $log"
  export PYTHONPATH="$PWD/$wheel_dir${PYTHONPATH:+:$PYTHONPATH}"
  unset RUEDA_LIBRARY
  ruedarun="$wheel_dir/rueda/bin/ruedarun"
}

mkdir -p build
: >"$log"
case "${1:-}" in
  "")
    wheel="$(find_wheel)"
    if [ -n "$wheel" ]; then take_wheel "$wheel"; else build_from_source; fi
    ;;
  --build) build_from_source ;;
  --wheel)
    [ $# -eq 2 ] || die "--wheel wants a file"
    take_wheel "$2"
    ;;
  *) die "unknown argument '$1'; there are only --wheel FILE and --build" ;;
esac

begin "training on handwritten digits: 2 node daemons, 4 processes"
started="$SECONDS"
"$ruedarun" -np 4 --virtual-nodes 2 \
  /usr/bin/python3 deploy/quickstart_rank.py client/python/examples/digits.py --check-reference || {
  status=$?
  printf 'quickstart: the training job failed with exit code %d, see above\n' "$status" >&2
  exit "$status"
}
printf '    %d s\n' $((SECONDS - started))

if [ "$ruedarun" = "$build_dir/bin/ruedarun" ]; then
  settings="PYTHONPATH=client/python RUEDA_LIBRARY=$build_dir/lib/librueda.so"
else
  settings="PYTHONPATH=$wheel_dir"
fi
cat <<END
${bold}Done in $SECONDS s.${plain} Next:
  the same job, shaped as you like    export $settings
                                      $ruedarun -np 4 /usr/bin/python3 client/python/examples/digits.py
  everything else, with the bench     deploy/packages.sh build && cmake --preset release && cmake --build --preset release
  how fast this machine's ring is     build/release/bin/ruedarun -np 4 --virtual-nodes 2 build/release/bin/rueda-bench allreduce
  the tests                           ./tests/run.sh
  daemons for a cluster               deploy/systemd, deploy/kubernetes
END
