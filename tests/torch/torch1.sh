#!/bin/bash
# Makes a virtual environment outside the tree that has Debian's PyTorch, and what its own tests need besides. Prints its
# Python.
#
#   RUEDA_TORCH1=/somewhere tests/torch/torch1.sh
set -euo pipefail
folder="${RUEDA_TORCH1:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/torch1}"
if [ ! -e "$folder/complete" ]; then
  /usr/bin/python3 -m venv --system-site-packages "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check 'expecttest<0.2' >&2
  touch "$folder/complete"
fi
echo "$folder/bin/python"
