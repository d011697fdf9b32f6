#!/bin/bash
# Puts Keras 3 with its backends JAX and PyTorch into a virtual environment outside the tree, unless it is there, and prints its
# Python. PyTorch is that of tests/torch/torch2.sh.
#
#   RUEDA_TENSORFLOW=/somewhere tests/tensorflow/keras.sh
set -euo pipefail
folder="${RUEDA_TENSORFLOW:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/tensorflow}/keras"
if [ ! -e "$folder/complete" ]; then
  torch="$(tests/torch/torch2.sh)"
  /usr/bin/python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 numpy >&2
  site="$("$folder/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")"
  "$torch" -c "import sysconfig; print(sysconfig.get_path('purelib'))" >"$site/torch2.pth"
  touch "$folder/complete"
fi
echo "$folder/bin/python"
