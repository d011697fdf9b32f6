#!/bin/bash
# Puts a version of TensorFlow for CPUs, and what its tests and examples need, from PyPI into a virtual environment outside the tree,
# unless it is there: some 1.6 GB. Prints its Python.
#
#   RUEDA_TENSORFLOW=/somewhere tests/tensorflow/tensorflow.sh 2.21.0
set -euo pipefail
version="$1"
folder="${RUEDA_TENSORFLOW:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/tensorflow}/$version"
if [ ! -e "$folder/complete" ]; then
  /usr/bin/python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "tensorflow-cpu==$version" scikit-learn >&2
  touch "$folder/complete"
fi
echo "$folder/bin/python"
