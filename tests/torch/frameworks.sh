#!/bin/bash
# Puts the frameworks above PyTorch from PyPI into a virtual environment outside the tree, unless they are there: a download of some
# 0.8 GB beside PyTorch 2 itself, which tests/torch/torch2.sh installs. Prints its Python.
#
#   RUEDA_FRAMEWORKS=/somewhere tests/torch/frameworks.sh
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="${RUEDA_FRAMEWORKS:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/frameworks}"
if [ ! -e "$folder/complete" ]; then
  torch="$("$here/torch2.sh")"
  /usr/bin/python3 -m venv "$folder"
  # PyTorch, accelerate and Lightning are read where they are.
  "$torch" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch2.pth"
  "$folder/bin/pip" install --quiet --disable-pip-version-check setuptools wheel >&2
  # DeepSpeed is built here, without its operators: it asks the PyTorch that is installed what to build.
  DS_BUILD_OPS=0 DS_ACCELERATOR=cpu "$folder/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation \
    'transformers>=5,<6' 'deepspeed>=0.19,<0.20' 'ray[train]>=2.60,<3' >&2
  touch "$folder/complete"
fi
echo "$folder/bin/python"
