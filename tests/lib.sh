# What run.sh and long.sh share: stages and their account, building a preset, running its tests, adding up the results.
# shellcheck shell=bash

# shellcheck source=sanitizers/env.sh
. "${BASH_SOURCE[0]%/*}/sanitizers/env.sh"

readonly account="$PWD/build/account"
passed=0
failed=0
failures=()
skipped=()
stage_name=''
stage_began=0

# begin_account: forgets what is left of the run before, and measures the machine.
begin_account() {
  rm -rf "$account"
  mkdir -p "$account"
  measure_speed
}

measure_speed() { /usr/bin/python3 tests/speed.py >>"$account/speed.txt"; }

# stage NAME: counts what follows as this stage, until the next one. A budget may name the first word (budgets.txt).
stage() {
  end_stage
  stage_name="$1"
  stage_began="$SECONDS"
  printf '\n=== %s (%d s so far)\n' "$1" "$SECONDS"
}

end_stage() {
  [ -z "$stage_name" ] || printf '%d\t%s\n' $((SECONDS - stage_began)) "$stage_name" >>"$account/stages.tsv"
  stage_name=''
}

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

# build_preset PRESET [CMAKE-ARGUMENT...]: builds what the tests run, or the target $build_target; returns 1 when it does not
# build.
build_preset() {
  local preset="$1"
  shift
  stage "build $preset"
  if cmake --preset "$preset" "$@" >"build/$preset-configure.log" 2>&1; then
    cmake --build --preset "$preset" --parallel "$(count_jobs)" --target "${build_target:-checked}" && return 0
  else
    cat "build/$preset-configure.log"
  fi
  note_failure "the build of $preset"
  return 1
}

# run_ctest PRESET NAME CTEST-ARGUMENT...: runs tests; the log is build/NAME.log, and the junit file is in the account.
run_ctest() {
  local preset="$1" name="$2"
  shift 2
  "${sanitizer_prefix[@]}" ctest --preset "$preset" --timeout 600 --output-junit "$account/$name.xml" "$@" 2>&1 |
    tee "build/$name.log" || true
}

# test_preset PRESET STAGE CTEST-ARGUMENT...: adds the preset's results to the sums. Tests say in half cores what they take
# (PROCESSORS), and a quarter more of them run than there are, because most also wait. What fails beside other tests is run once more, alone: a test that then passes counts as passed, and is written
# down (account.py), because it may do so only once.
test_preset() {
  local preset="$1" what="$2" name="$1-$2" bad again total suspect suspects=()
  shift 2
  stage "$what $preset"
  run_ctest "$preset" "$name" --parallel "$((5 * $(nproc) / 2))" "$@"
  # The line is "98% tests passed, 1 tests failed out of 54".
  read -r bad total < <(read_result "build/$name.log") || true
  if [ -z "${total:-}" ]; then
    note_failure "ctest of $preset ($what), which ran nothing"
    return
  fi
  if [ "$bad" -gt 0 ]; then
    mapfile -t suspects < <(read_failures "build/$name.log")
    stage "$what $preset again, alone: ${suspects[*]}"
    run_ctest "$preset" "$name-again" --rerun-failed
    read -r again _ < <(read_result "build/$name-again.log") || true
    bad="${again:-$bad}"
    for suspect in "${suspects[@]}"; do
      if read_failures "build/$name-again.log" | grep -xF -- "$suspect" >/dev/null; then
        failures+=("$preset: $suspect")
      else
        printf '%s %s\n' "$preset" "$suspect" >>"$account/unsteady.txt"
      fi
    done
  fi
  mapfile -t suspects < <(read_skipped "build/$name.log")
  for suspect in "${suspects[@]}"; do skipped+=("$preset: $suspect"); done
  passed=$((passed + total - bad - ${#suspects[@]}))
  failed=$((failed + bad))
}

# read_result LOG: prints "FAILED TOTAL", as ctest says at its end.
read_result() {
  sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$1"
}

# read_failures LOG: prints the names of the tests that failed.
read_failures() {
  sed -nE '/tests FAILED:$/,$ s/^\s*[0-9]+ - (\S+).*$/\1/p' "$1"
}

# read_skipped LOG: prints the names of the tests that ctest did not count as run, because they could not run here.
read_skipped() {
  sed -nE '/tests did not run:$/,$ s/^\s*[0-9]+ - (\S+) \((Skipped|Disabled)\)$/\1/p' "$1"
}

# add_results WHAT LOG: adds the line "WHAT: N passed, M failed" that a script of ours ends with.
add_results() {
  local good bad
  read -r good bad < <(sed -nE "s/^$1: ([0-9]+) passed, ([0-9]+) failed.*\$/\1 \2/p" "$2" | tail -n 1) || true
  if [ -z "${bad:-}" ]; then
    note_failure "$1, which did not come to its end"
    return
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  [ "$bad" -eq 0 ] || failures+=("$(grep "^$1: " "$2" | tail -n 1)")
}

# run_lint ARGUMENT...: runs tests/lint.sh, and adds its results.
run_lint() {
  if [ "${1:-}" = --slice ]; then stage "slice lint"; else stage "lint${*:+ $*}"; fi
  tests/lint.sh "$@" 2>&1 | tee build/lint.log || true
  add_results lint build/lint.log
}

# run_fuzzers SECONDS: runs the fuzzers; each counts as one test.
run_fuzzers() {
  stage "fuzz $1 s each"
  tests/fuzz/run.sh "$@" 2>&1 | tee build/fuzz.log || true
  add_results fuzzers build/fuzz.log
}

# finish TIER: prints the account, and the last line of a test run; the exit code says the same.
finish() {
  local log=build/account.log reason
  end_stage
  measure_speed
  /usr/bin/python3 tests/account.py "$1" "$account" 2>&1 | tee "$log" || true
  grep -q ' s  together$' "$log" || note_failure "the account"
  while read -r reason; do note_failure "$reason"; done < <(sed -n 's/^over: //p' "$log")
  printf '\n'
  [ ${#skipped[@]} -eq 0 ] || printf 'SKIPPED, and not counted: %s\n' "${skipped[@]}"
  [ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
