#!/bin/bash
# Puts a version of TensorFlow for CPUs, and what its tests and examples need, from PyPI into a virtual environment outside the tree,
# unless it is there: some 1.8 GB, 90 seconds. Prints its Python. If PyPI cannot be reached it says so, and fails.
#
#   RUEDA_TENSORFLOW=/somewhere tests/tensorflow/tensorflow.sh 2.21.0
set -euo pipefail
version="$1"
folder="${RUEDA_TENSORFLOW:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/tensorflow}/$version"
if [ ! -e "$folder/complete" ]; then
  if ! /usr/bin/python3 -m venv "$folder" >&2 ||
    ! "$folder/bin/pip" install --quiet --retries 1 --disable-pip-version-check "tensorflow-cpu==$version" scikit-learn >&2; then
    echo "TensorFlow $version could not be installed from PyPI into $folder; let this machine reach PyPI, or set RUEDA_TENSORFLOW to a folder that has $version already" >&2
    exit 1
  fi
  touch "$folder/complete"
fi
echo "$folder/bin/python"
