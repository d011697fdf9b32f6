#!/bin/bash
# Puts a version of JAX for CPUs, and what the example needs, from PyPI into a virtual environment outside the tree, unless it is
# there: some 600 MB. Prints its Python. `oldest` is the oldest version that is served, with whose headers librueda_jax.so is built;
# `newest` is the newest that has been tested.
#
#   RUEDA_JAX=/somewhere tests/jax/jax.sh oldest|newest
set -euo pipefail
case "${1:-}" in
  oldest) version=0.5.3 ;;
  newest) version=0.10.2 ;;
  *)
    echo "tests/jax/jax.sh: say which version, oldest or newest" >&2
    exit 2
    ;;
esac
folder="${RUEDA_JAX:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda}/jax-${version%.*}"
if [ ! -e "$folder/complete" ]; then
  /usr/bin/python3 -m venv "$folder"
  if ! "$folder/bin/pip" install --quiet --disable-pip-version-check "jax==$version" "jaxlib==$version" numpy scikit-learn >&2; then
    echo "tests/jax/jax.sh: JAX $version could not be installed into $folder: pip says above why; it needs a package index that it can" \
      "reach (pip config), or set RUEDA_JAX to a folder that has jax-${version%.*} already" >&2
    exit 1
  fi
  touch "$folder/complete"
fi
echo "$folder/bin/python"
