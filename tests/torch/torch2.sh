#!/bin/bash
# Puts PyTorch 2, and what its examples need, from PyPI into a virtual environment outside the tree, unless it is there:
# some 3 GB. Prints its Python.
#
#   RUEDA_TORCH2=/somewhere tests/torch/torch2.sh
set -euo pipefail
folder="${RUEDA_TORCH2:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/torch2}"
if [ ! -e "$folder/complete" ]; then
  /usr/bin/python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check \
    'torch>=2,<3' numpy scikit-learn expecttest accelerate lightning >&2
  touch "$folder/complete"
fi
echo "$folder/bin/python"
