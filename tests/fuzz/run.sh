#!/bin/bash
# Builds every fuzzer of this folder with clang and runs each for some seconds.
#
#   tests/fuzz/run.sh [SECONDS [NAME...]]       20 s and all of them when not told otherwise
#
# Inputs that reach new code are kept in build/fuzz/corpus/NAME, so that a later run goes on from there;
# an input that breaks something is left in build/fuzz/artifacts, and `build/fuzz/bin/NAME FILE` repeats
# it. Once the bug is mended, add the input to tests/fuzz/corpus/NAME.txt (corpus.py): every run starts with those.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=../sanitizers/env.sh
. ./tests/sanitizers/env.sh

readonly seconds="${1:-20}"
[ $# -eq 0 ] || shift
readonly build_dir=build/fuzz
# Asio calls handlers through casts that -fsanitize=function of clang 14 takes for errors.
readonly flags="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=function \
-fno-sanitize-recover=undefined -fno-omit-frame-pointer"

cmake -S . -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRUEDA_FUZZ=ON \
  -DPython3_EXECUTABLE=/usr/bin/python3 -DCMAKE_C_COMPILER=clang-14 \
  -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$build_dir" --target fuzzers

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  mapfile -t names < <(cd tests/fuzz && printf '%s\n' *_fuzz.cc | sed 's/\.cc$//')
fi

failed=()
mkdir -p "$build_dir/artifacts"
for name in "${names[@]}"; do
  corpora=("$build_dir/corpus/$name")
  mkdir -p "${corpora[0]}"
  [ ! -f "tests/fuzz/corpus/$name.txt" ] || tests/fuzz/corpus.py unpack "tests/fuzz/corpus/$name.txt" "${corpora[0]}"
  printf 'fuzz: %s for %s s\n' "$name" "$seconds"
  log="$build_dir/$name.log"
  if "${sanitizer_prefix[@]}" "$build_dir/bin/$name" -max_total_time="$seconds" -timeout=20 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build_dir/artifacts/$name-" \
    "${corpora[@]}" >"$log" 2>&1; then
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec)' "$log"
  else
    tail -n 60 "$log"
    failed+=("$name")
  fi
done

printf 'fuzzers: %d passed, %d failed%s\n' $((${#names[@]} - ${#failed[@]})) ${#failed[@]} \
  "${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} -eq 0 ]
