#!/bin/bash
# Installs what is missing, looks at the tree, builds, and runs the tests: as they are, on the newest TensorFlow, a piece of the JAX
# front end, under the address and undefined-behaviour sanitizers, under the thread sanitizer, and a sixteenth of what only tests/long.sh
# has.
#
#   tests/run.sh            what is run for each change; docs/testing.md says how long it takes
#   tests/run.sh --quick    after an edit: the release build, and the tests that are neither slow nor long
#   tests/run.sh --torch2   both front ends on PyTorch 2 from PyPI (tests/torch/torch2.sh: a download of 3 GB, which is
#                           kept), and PyTorch's own tests on it and on Debian's
#   tests/run.sh --frameworks   transformers, accelerate, Lightning, DeepSpeed and Ray Train on PyTorch 2 (tests/torch/frameworks.sh: 0.8 GB
#                           beside what --torch2 downloads, which are kept)
#   tests/run.sh --jax      rueda.jax on the oldest JAX that it serves and on the newest (tests/jax/jax.sh: downloads of 600 MB, which
#                           are kept)
#   tests/run.sh --tensorflow   the TensorFlow and Keras front ends on the oldest and the newest TensorFlow that they serve, from PyPI
#                           (tests/tensorflow/tensorflow.sh: 6 GB, which are kept), Keras 3 on JAX and PyTorch (keras.sh beside it), and
#                           the names that the library of ops needs in three versions between
#
# Ends with what each stage took and the line "N passed, M failed", summed over all builds; the exit code is 0 when M is 0. A run
# that takes longer than tests/budgets.txt allows has failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=lib.sh
. ./tests/lib.sh

# The kernels are compiled for one architecture of GPUs here; the shipped plugin has several.
readonly one_gpu=-DCMAKE_CUDA_ARCHITECTURES=80
readonly newest_tensorflow=2.21.0
# What each change runs of the JAX front end; --jax runs all of it.
readonly jax_piece=(jax_test.JaxTest.test_collectives_with_a_pool_of_one_thread jax_mpi_test.JaxMpiTest.test_collectives_on_two_ranks)

run_quick() {
  stage packages
  deploy/packages.sh build runtime test lint
  if build_preset release "$one_gpu"; then test_preset release test -LE "slow|long"; fi
  finish quick
}

run_torch2() {
  local debian python
  stage packages
  deploy/packages.sh build runtime test lint
  if build_preset release "$one_gpu"; then
    debian="$(tests/torch/torch1.sh)"
    RUEDA_TEST_PYTHON="$(tests/torch/torch2.sh)"
    export RUEDA_TEST_PYTHON
    test_preset release test -R "^(distributed_test|distributed_examples_test|device_torch_test|torch_test|torch_death_test|autoload_test)$"
    for python in "$debian" "$RUEDA_TEST_PYTHON"; do
      stage "PyTorch's own tests with $python"
      if tests/torch/run.sh build/release "$python"; then
        passed=$((passed + 1))
      else
        note_failure "PyTorch's own tests with $python"
      fi
    done
  fi
  finish torch2
}

run_frameworks() {
  stage packages
  deploy/packages.sh build runtime test lint
  if build_preset release "$one_gpu"; then
    RUEDA_TEST_PYTHON="$(tests/torch/frameworks.sh)"
    export RUEDA_TEST_PYTHON
    test_preset release test -R "^(frameworks_test|autoload_test)$"
  fi
  finish frameworks
}

run_jax() {
  local python headers which
  stage packages
  deploy/packages.sh build runtime test lint
  python="$(tests/jax/jax.sh oldest)"
  headers="$("$python" -c 'import jax.ffi; print(jax.ffi.include_dir())')"
  if build_preset release "$one_gpu" "-DRUEDA_JAX_INCLUDE=$headers"; then
    for which in oldest newest; do
      RUEDA_TEST_PYTHON="$(tests/jax/jax.sh "$which")"
      export RUEDA_TEST_PYTHON
      stage "names of jaxlib, $which"
      if tests/jax/mpi_names_test.py build/release/lib/librueda_mpi.so "$RUEDA_TEST_PYTHON"; then
        passed=$((passed + 1))
      else
        note_failure "the names that the $which jaxlib looks up"
      fi
      test_preset release "jax-$which" -R "^(jax_test|jax_mpi_test|client_jax_test|client_python_jax_missing_test)$"
    done
  fi
  finish jax
}

# run_jax_piece: one test of each of rueda.jax's libraries on the newest JAX, with two ranks. The release build gets them in addition.
run_jax_piece() {
  local oldest headers test
  stage "jax packages"
  if ! oldest="$(tests/jax/jax.sh oldest)" || ! RUEDA_TEST_PYTHON="$(tests/jax/jax.sh newest)"; then
    note_failure "JAX, which could not be installed: tests/jax/jax.sh says above why"
    return
  fi
  headers="$("$oldest" -c 'import jax.ffi; print(jax.ffi.include_dir())')"
  if build_target=rueda_jax build_preset release "$one_gpu" "-DRUEDA_JAX_INCLUDE=$headers"; then
    for test in "${jax_piece[@]}"; do
      stage "jax $test"
      if RUEDA_TEST_PYTHON="$RUEDA_TEST_PYTHON" /usr/bin/python3 tests/integration/run.py "${test%%.*}" build/release . "${test#*.}"; then
        passed=$((passed + 1))
      else
        note_failure "$test with $RUEDA_TEST_PYTHON"
      fi
    done
  fi
}

# compare_with_tensorflow VERSION PYTHON: looks whether a TensorFlow has what the library of ops needs.
compare_with_tensorflow() {
  if tests/tensorflow/abi_test.py build/release/lib/librueda_tensorflow.so "$2"; then
    passed=$((passed + 1))
  else
    note_failure "the ABI of TensorFlow $1"
  fi
}

run_tensorflow() {
  local version python headers
  stage packages
  deploy/packages.sh build runtime test lint
  headers="$("$(tests/jax/jax.sh oldest)" -c 'import jax.ffi; print(jax.ffi.include_dir())')"
  if build_preset release "$one_gpu" "-DRUEDA_JAX_INCLUDE=$headers"; then
    for version in 2.15.1 "$newest_tensorflow"; do
      stage "TensorFlow $version"
      python="$(tests/tensorflow/tensorflow.sh "$version")"
      compare_with_tensorflow "$version" "$python"
      RUEDA_TEST_PYTHON="$python" test_preset release "tensorflow-$version" -R "^(tensorflow_test|tensorflow_elastic_test|keras_backends_test|client_python_horovod_tensorflow_api_test)$"
    done
    for version in 2.16.2 2.18.1 2.20.0; do
      stage "the names of TensorFlow $version"
      python="$(tests/tensorflow/tensorflow.sh "$version" bare)"
      compare_with_tensorflow "$version" "$python"
    done
    RUEDA_TEST_PYTHON="$(tests/tensorflow/keras.sh)"
    export RUEDA_TEST_PYTHON
    test_preset release keras-backends -R "^keras_backends_test$"
  fi
  finish tensorflow
}

# run_small_tensorflow PID: waits for the installation of the newest TensorFlow, and runs there what shows soonest that a change has
# broken the front end: its collectives, their gradients, and a fit() of Keras on 2 ranks.
run_small_tensorflow() {
  local python log=build/tensorflow.log
  stage "tensorflow $newest_tensorflow"
  if ! wait "$1" || ! python="$(tests/tensorflow/tensorflow.sh "$newest_tensorflow")"; then
    cat "$log"
    note_failure "the installation of TensorFlow $newest_tensorflow"
  elif RUEDA_TEST_PYTHON="$python" /usr/bin/python3 tests/integration/run.py tensorflow_test build/release "$PWD" \
    TensorFlowTest.test_collectives_and_gradients TensorFlowTest.test_a_fit_of_keras; then
    passed=$((passed + 1))
  else
    note_failure "the front end for TensorFlow $newest_tensorflow"
  fi
}

# test_sanitized leaves out tests that run none of our instrumented code, or cannot run with it (nosan, noasan, notsan), and those
# that only tests/long.sh runs under the sanitizer (longasan, longtsan).
test_sanitized() {
  test_preset "$1" test -LE "^(long|nosan|no$1|long$1)\$"
}

# run_slice N: runs a sixteenth (tests/slice.py) of what only tests/long.sh has: tests in their long form; clang-tidy, which also
# sees whether a file includes what it uses; and in two of the sixteen the fuzzers.
run_slice() {
  local build names tests
  tests="$(tests/slice.py --tests "$1" release asan tsan)"
  for build in release asan tsan; do
    names="$(awk -v build="$build" '$1 == build { printf "%s%s", found++ ? "|" : "", $2 }' <<<"$tests")"
    if [ -n "$names" ]; then RUEDA_TEST_TIER=long test_preset "$build" slice -R "^($names)\$"; fi
  done
  run_lint --slice "$1"
  case "$1" in
    3 | 11) run_fuzzers 60 ;;
  esac
}

run_change() {
  local slice packages tensorflow
  stage packages
  deploy/packages.sh build runtime lint
  tests/tensorflow/tensorflow.sh "$newest_tensorflow" >build/tensorflow.log 2>&1 &
  tensorflow=$!
  slice="$(tests/slice.py)"
  # The other packages are installed while the compilers run.
  deploy/packages.sh test >build/packages.log 2>&1 &
  packages=$!
  run_lint
  if build_preset release "$one_gpu"; then
    stage "packages for tests"
    wait "$packages" || {
      cat build/packages.log
      note_failure "the packages for tests"
    }
    # These seeds come in addition, and no run before had them.
    RUEDA_SIM_FIRST="$((0x$(git rev-parse --short=8 HEAD)))" RUEDA_SIM_SEEDS=5000 RUEDA_SIM_GENERATIONS=100000 RUEDA_TEST_SCALE=0.5 \
      test_preset release test -LE "^long\$"
    run_small_tensorflow "$tensorflow"
    run_jax_piece
    if build_preset asan; then RUEDA_TEST_SCALE=0.1 test_sanitized asan; fi
    if build_preset tsan; then RUEDA_TEST_SCALE=0.1 test_sanitized tsan; fi
    run_slice "$slice"
  fi
  finish change
}

mkdir -p build
begin_account
case "${1:-}" in
  "") run_change ;;
  --quick) run_quick ;;
  --torch2) run_torch2 ;;
  --frameworks) run_frameworks ;;
  --jax) run_jax ;;
  --tensorflow) run_tensorflow ;;
  *)
    echo "tests/run.sh: unknown argument '$1'; there are only --quick, --torch2, --frameworks, --jax and --tensorflow" >&2
    exit 2
    ;;
esac
