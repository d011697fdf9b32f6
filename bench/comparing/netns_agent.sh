#!/bin/sh
# mpirun calls this script instead of ssh, with an address and a command. It runs the command in the network namespace that
# $RUEDA_PLACES ("ADDRESS@FILE,...") has for the address, with a host name of its own.
set -eu
address="$1"
shift
for place in $(printf '%s' "$RUEDA_PLACES" | tr ',' ' '); do
  [ "${place%%@*}" = "$address" ] || continue
  # shellcheck disable=SC2016
  exec nsenter --net="${place#*@}" unshare --uts sh -c \
    'echo "$0" > /proc/sys/kernel/hostname && exec sh -c "$1"' "node-$address" "$*"
done
echo "no network namespace has the address $address" >&2
exit 1
