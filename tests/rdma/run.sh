#!/bin/bash
# Tests RDMA in a guest that has it (tests/rdma/guest.sh): the conformance suite of transports, and daemons that reduce
# over it, die, stand still and fall back.
#
#   tests/rdma/run.sh BUILD SOURCE     exit status 77: no guest can be had here, and the text says why
set -euo pipefail
build="$(realpath "$1")"
source="$(realpath "$2")"
cd "$source"
# The polled one over two streams takes as long again, most of it in spinning. What falls back to TCP is tested everywhere.
fabrics='*/rdma'
[ "${RUEDA_TEST_TIER:-}" != long ] || fabrics='*/rdma:*/rdma_polled*'
exec tests/rdma/guest.sh --seconds 580 env "RUEDA_TEST_TIER=${RUEDA_TEST_TIER:-}" bash -euo pipefail -c "
  '$build/bin/transport_conformance_test' --gtest_filter='$fabrics' --gtest_brief=1 2>&1 |
    grep -v '\[info\|\[warning\|^Running main'
  /usr/bin/python3 tests/integration/run.py rdma_guest_test '$build' '$source'"
