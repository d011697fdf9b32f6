# What run.sh and long.sh share: build a preset, run its tests, add up the results.
# shellcheck shell=bash

# shellcheck source=sanitizers/env.sh
. "${BASH_SOURCE[0]%/*}/sanitizers/env.sh"

# Several checkouts share what ccache holds.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

passed=0
failed=0
failures=()
unsteady=()

say() { printf '\n=== %s\n' "$*"; }

# The compilers of the gRPC units take up to 1 GB each, those of sanitizer builds more.
count_jobs() {
  local available_kb
  available_kb="$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)"
  if [ "$available_kb" -lt $((4 * 1024 * 1024)) ]; then echo 1; else nproc; fi
}

note_failure() {
  failed=$((failed + 1))
  failures+=("$1")
}

# build_preset PRESET: 1 when it does not build.
build_preset() {
  say "build $1 ($SECONDS s so far)"
  if cmake --preset "$1" >"build/$1-configure.log" 2>&1; then
    cmake --build --preset "$1" --parallel "$(count_jobs)" && return 0
  else
    cat "build/$1-configure.log"
  fi
  note_failure "the build of $1"
  return 1
}

# test_preset PRESET CTEST-ARGUMENT...: adds the preset's results to the sums. What fails beside other
# tests is run once more, alone: a test that then passes counts as passed, and is named at the end.
test_preset() {
  local preset="$1" log="build/$1-tests.log" bad again total name suspects=()
  shift
  say "test $preset ($SECONDS s so far)"
  "${sanitizer_prefix[@]}" ctest --preset "$preset" --parallel "$(nproc)" --timeout 600 "$@" 2>&1 |
    tee "$log" || true
  # "98% tests passed, 1 tests failed out of 54"
  read -r bad total < <(read_result "$log") || true
  if [ -z "${total:-}" ]; then
    note_failure "ctest of $preset, which ran nothing"
    return
  fi
  if [ "$bad" -gt 0 ]; then
    mapfile -t suspects < <(read_failures "$log")
    say "test $preset again, alone: ${suspects[*]}"
    log="build/$preset-tests-again.log"
    "${sanitizer_prefix[@]}" ctest --preset "$preset" --rerun-failed --timeout 600 2>&1 | tee "$log" || true
    read -r again _ < <(read_result "$log") || true
    bad="${again:-$bad}"
    for name in "${suspects[@]}"; do
      if read_failures "$log" | grep -qxF -- "$name"; then
        failures+=("$preset: $name")
      else
        unsteady+=("$preset: $name")
      fi
    done
  fi
  passed=$((passed + total - bad))
  failed=$((failed + bad))
}

# read_result LOG: "FAILED TOTAL", as ctest says at its end.
read_result() {
  sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$1"
}

# read_failures LOG: the names of the tests that failed.
read_failures() {
  sed -nE '/tests FAILED:$/,$ s/^\s*[0-9]+ - (\S+).*$/\1/p' "$1"
}

# run_fuzzers SECONDS: each counts as one test.
run_fuzzers() {
  local log=build/fuzz.log good bad
  say "fuzz, $1 s each ($SECONDS s so far)"
  tests/fuzz/run.sh "$1" 2>&1 | tee "$log" || true
  read -r good bad < <(sed -nE 's/^fuzzers: ([0-9]+) passed, ([0-9]+) failed.*$/\1 \2/p' "$log") || true
  if [ -z "${bad:-}" ]; then
    note_failure "the build of the fuzzers"
    return
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  [ "$bad" -eq 0 ] || failures+=("$(tail -n 1 "$log")")
}

# The last line of a test run; the exit code says the same.
finish() {
  say "done in $SECONDS s"
  [ ${#unsteady[@]} -eq 0 ] || printf 'failed at first, passed alone: %s\n' "${unsteady[@]}"
  [ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
