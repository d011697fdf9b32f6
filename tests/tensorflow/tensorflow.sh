#!/bin/bash
# Puts a version of TensorFlow for CPUs, and what its tests, examples and benchmarks need, from PyPI into a virtual environment outside the
# tree, unless it is there: some 1.8 GB, 90 seconds. Prints its Python. If PyPI cannot be reached it says so, and fails.
#
#   RUEDA_TENSORFLOW=/somewhere tests/tensorflow/tensorflow.sh 2.21.0
#   tests/tensorflow/tensorflow.sh 2.18.1 bare       # TensorFlow by itself, which can be looked at and not imported
set -euo pipefail
version="$1"
kind="${2:-whole}"
folder="${RUEDA_TENSORFLOW:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/tensorflow}/$version"
has="with tf-keras"  # what an older "complete" does not say
if [ "$kind" = bare ]; then
  if [ -e "$folder/complete" ]; then
    kind=whole
  else
    folder="$folder-bare"
    has=bare
  fi
fi

# install PACKAGE...: into the environment.
install() {
  "$folder/bin/pip" install --quiet --retries 1 --disable-pip-version-check "$@" >&2
}

# tf-keras asks for the package tensorflow, whose files are those of tensorflow-cpu.
install_all() {
  /usr/bin/python3 -m venv "$folder" >&2 || return 1
  if [ "$kind" = bare ]; then
    install --no-deps "tensorflow-cpu==$version"
  else
    install "tensorflow-cpu==$version" scikit-learn && install --no-deps "tf-keras==${version%.*}.*"
  fi
}

if [ "$(cat "$folder/complete" 2>/dev/null)" != "$has" ]; then
  if install_all; then
    echo "$has" >"$folder/complete"
  elif [ -e "$folder/complete" ]; then
    echo "tf-keras could not be installed from PyPI into $folder; only bench/tensorflow_training.py needs it" >&2
  else
    echo "TensorFlow $version could not be installed from PyPI into $folder; let this machine reach PyPI, or set RUEDA_TENSORFLOW to a folder that has $version already" >&2
    exit 1
  fi
fi
echo "$folder/bin/python"
