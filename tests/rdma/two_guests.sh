#!/bin/bash
# Tests RDMA between two machines, each a guest with Soft-RoCE (tests/rdma/guest.sh), on one virtual wire: a daemon in each, jobs whose
# results are checked, and then the death of a machine: the second one's qemu is killed in the middle of a job. The ranks of the first
# must have the error within the failure timeout and a second, by this machine's clock.
#
#   tests/rdma/two_guests.sh BUILD SOURCE     exit status 77: no guests can be had here, and the text says why
set -euo pipefail
build="$(realpath "$1")"
source="$(realpath "$2")"
cd "$source"

readonly timeout_ms=10000
readonly patience_s=600
shared="$(mktemp -d)"
first=
second=
is_good=

# shellcheck disable=SC2329  # The trap calls it.
clean_up() {
  local pid
  for pid in $first $second; do
    kill "$pid" || true
    wait "$pid" || true
  done 2>/dev/null
  [ "$is_good" ] || cat "$shared"/output-* || true
  rm -rf "$shared"
}
trap clean_up EXIT
trap 'exit 143' TERM INT

# boot NUMBER: starts a guest in the background, whose part of the test begins at once.
boot() {
  tests/rdma/guest.sh --memory 1024 --seconds 900 --shared "$shared" --pid "$shared/qemu-$1" --link "$shared/link" --number "$1" \
    bash -euo pipefail -c "
      touch \"\$RUEDA_TEST_SHARED/ready-$1\"
      export RUEDA_TEST_NUMBER=$1 RUEDA_TEST_TIMEOUT_MS=$timeout_ms
      exec /usr/bin/python3 tests/integration/run.py rdma_two_guests_test '$build' '$source'" >"$shared/output-$1" 2>&1 &
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# wait_for FILE PID: waits until the guests have made the file. It ends the test with the guest's status if that ends first.
wait_for() {
  local deadline=$((SECONDS + patience_s)) status=0
  until [ -e "$shared/$1" ]; do
    if ! kill -0 "$2" 2>/dev/null; then
      wait "$2" || status=$?
      [ "$status" -ne 0 ] || status=1
      exit "$status"
    fi
    if [ "$SECONDS" -gt "$deadline" ]; then
      echo "tests/rdma/two_guests.sh: a guest did not come to \"$1\" in $patience_s s" >&2
      exit 1
    fi
    sleep 0.02
  done
}

boot 1
first=$!
wait_for ready-1 "$first"
boot 2
second=$!
for number in 1 2; do
  wait_for "right-$number" "$second"
done
for number in 1 2; do
  wait_for "looping-$number" "$second"
done
sleep 1  # The loop goes on.
read -r pid <"$shared/qemu-2"
kill -KILL "$pid"
killed_ms="$(now_ms)"
wait_for told-1 "$first"
took_ms=$(($(now_ms) - killed_ms))
wait "$second" 2>/dev/null || true
second=
wait "$first"
first=
grep '^told: ' "$shared/output-1"
echo "right results between two machines; ranks knew of a machine's death after $took_ms ms, with a failure timeout of that many ms: $timeout_ms"
[ "$took_ms" -le $((timeout_ms + 1000)) ] || { echo "that is more than the timeout and a second" >&2; exit 1; }
is_good=yes
