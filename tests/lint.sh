#!/bin/bash
# Checks the tree without compiling it, in about a minute: clang-format, clang-tidy, ruff, mypy, shellcheck, layering,
# dead code, tidiness and documents. Each is one test of run.sh; its findings are printed where it fails.
#
#   tests/lint.sh            clang-tidy looks at what has changed: since RUEDA_LINT_BASE, or what is not committed and what the
#                            last day before the newest commit brought; newest first, for 40 s
#   tests/lint.sh --all      clang-tidy looks at every file; half an hour on 2 cores
#   tests/lint.sh --slice N  clang-tidy alone, and of all files at every sixteenth, from the Nth on (tests/slice.py)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly tidy_dir=build/lint
readonly tidy_seconds=40
passed=0
failed=()

# check NAME COMMAND...: runs a test. It is silent when the test passes; the exit code 77 says that its tool cannot be had.
check() {
  local name="$1" started="$SECONDS" log="$tidy_dir/$1.log" status=0
  shift
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    printf 'lint: %-12s passed, %d s\n' "$name" $((SECONDS - started))
  elif [ "$status" -eq 77 ]; then
    tail -n 1 "$log"
    printf 'lint: %-12s SKIPPED, %d s; why is above\n' "$name" $((SECONDS - started))
  else
    failed+=("$name")
    tail -n 200 "$log"
    printf 'lint: %-12s FAILED, %d s; its findings are above\n' "$name" $((SECONDS - started))
  fi
}

tracked() { git ls-files --cached --others --exclude-standard -- "$@"; }

run_clang_format() {
  tracked '*.cc' '*.h' '*.hpp' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run -Werror
}

# Debian has no ruff; PyPI's is installed once, into the build folder.
run_ruff() {
  local venv="$tidy_dir/venv" version
  version="$(sed -n 's/^required-version = "==\(.*\)"$/\1/p' ruff.toml)"
  if ! "$venv/bin/ruff" --version 2>/dev/null | grep -x "ruff $version" >/dev/null; then
    if ! /usr/bin/python3 -m venv "$venv" || ! "$venv/bin/pip" install -q --retries 1 "ruff==$version"; then
      echo "ruff $version could not be installed from PyPI"
      return 77
    fi
  fi
  "$venv/bin/ruff" check --no-cache .
}

run_mypy() {
  (cd client/python && /usr/bin/python3 -m mypy --cache-dir "$OLDPWD/$tidy_dir/mypy")
}

run_script() { /usr/bin/python3 "tests/$1_test.py" "$PWD" "${@:2}"; }

# Makes compile commands for each file by itself, as clang sees them, and the headers made from proto/.
prepare_clang_tidy() {
  cmake --preset debug -B "$tidy_dir/cmake" -DRUEDA_CUDA=OFF -DRUEDA_TESTS=OFF >/dev/null &&
    ninja -C "$tidy_dir/cmake" cmake_object_order_depends_target_rueda_proto >/dev/null
}

lint_base() {
  local newest
  if [ -n "${RUEDA_LINT_BASE:-}" ]; then
    git rev-parse --verify "$RUEDA_LINT_BASE^{commit}"
    return
  fi
  newest="$(git log -1 --format=%ct)"
  git rev-list -1 --before="$((newest - 86400))" HEAD | grep . || git rev-list --max-parents=0 HEAD
}

# daemon/gpu/cuda is compiled only where there is a toolkit, client/jax/xla where there are XLA's headers.
all_sources() { tracked 'daemon/*.cc' 'agent/*.cc' 'client/*.cc' | grep -v -e '^daemon/gpu/cuda/' -e '^client/jax/xla/'; }

# Prints the sources to look at, one a line, the last changed first; for a header its own source.
changed_sources() {
  {
    git diff --name-only HEAD
    git log --format= --name-only "$(lint_base)..HEAD"
  } | sed -E 's/\.(h|hpp)$/.cc/' | awk '!seen[$0]++' | grep -xF -f <(all_sources) || true
}

# run_clang_tidy SECONDS: checks the sources in standard input, a file at a time on each core; it names those that there is no
# time for.
run_clang_tidy() {
  local until_s=$(($(date +%s) + $1)) sources
  sources="$(cat)"
  [ -n "$sources" ] || return 0
  prepare_clang_tidy
  # shellcheck disable=SC2016
  xargs -P "$(nproc)" -n 1 bash -c '
    if [ "$(date +%s)" -ge "$0" ]; then echo "not looked at, for want of time: $2"; exit 0; fi
    clang-tidy-14 -p "$1" --quiet --warnings-as-errors="*" "$2" 2>/dev/null' \
    "$until_s" "$tidy_dir/cmake" <<<"$sources"
}

mkdir -p "$tidy_dir"
case "${1:-}" in
  "")
    check clang-tidy run_clang_tidy "$tidy_seconds" < <(changed_sources)
    grep -h '^not looked at' "$tidy_dir/clang-tidy.log" || true
    ;;
  --all) check clang-tidy run_clang_tidy 100000 < <(all_sources) ;;
  --slice) check clang-tidy run_clang_tidy 100000 < <(all_sources | tests/slice.py --lines "$2") ;;
  *)
    echo "tests/lint.sh: unknown argument '$1'; there are only --all and --slice N" >&2
    exit 2
    ;;
esac

if [ "${1:-}" != --slice ]; then
  check clang-format run_clang_format
  check ruff run_ruff
  check mypy run_mypy
  for script in layering tidy dead account; do check "$script" run_script "$script"; done
  check docs run_script docs "$tidy_dir/nothing-built"
fi

printf 'lint: %d passed, %d failed%s\n' "$passed" "${#failed[@]}" "${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} -eq 0 ]
