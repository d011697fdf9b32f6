#!/bin/bash
# Installs Horovod for Debian's PyTorch, on Gloo, so that bench/compare.py can measure it as a peer.
#
#   bench/install_horovod.sh            build and install; does nothing if it is there already
#   bench/install_horovod.sh --python   print the Python that has it, whether it is there or not
#
# Everything goes into the folder $RUEDA_HOROVOD_DIR, or ~/.cache/rueda/horovod, and nothing into the system: to be rid of
# it, remove the folder. Building takes minutes; MAKEFLAGS=-j4 builds with four compilers instead of one.
set -euo pipefail

version=0.28.1
folder=${RUEDA_HOROVOD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/rueda/horovod}
venv=$folder/venv

say() { printf 'install_horovod: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

works() { "$venv/bin/python" -c 'import horovod.torch as hvd; assert hvd.gloo_built()' 2>/dev/null; }

# Horovod compiles against PyTorch's headers, which are packages of their own in Debian: they are unpacked, not installed.
provide_headers() {
  [ ! -e /usr/include/torch/extension.h ] || [ ! -e /usr/include/pybind11/pybind11.h ] || return 0
  # libtorch-dev's headers include those of the others.
  local packages=(libtorch-dev pybind11-dev libgflags-dev libgoogle-glog-dev)
  say "unpacking ${packages[*]}"
  # apt fetches as a user of its own otherwise, who cannot write here.
  (cd "$scratch" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}") ||
    die "apt-get could not fetch them; as root, run: apt-get install ${packages[*]}"
  local package
  for package in "$scratch"/*.deb; do
    dpkg -x "$package" "$scratch/headers"
  done
  local include=$scratch/headers/usr/include
  export CPLUS_INCLUDE_PATH=$include:$include/torch/csrc/api/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
}

# Fetches the source into $source, and mends a mistake: the connections that carry data ignore HOROVOD_GLOO_IFACE, and go to what
# the host's name means, which is the wrong network in a network namespace.
provide_source() {
  "$venv/bin/pip" download -q --no-build-isolation --no-deps --no-binary horovod -d "$scratch" "horovod==$version" ||
    die "pip could not fetch horovod $version"
  tar -xf "$scratch/horovod-$version.tar.gz" -C "$scratch"
  source=$scratch/horovod-$version
  local file=$source/horovod/common/gloo/gloo_context.cc
  sed -i '/::InitializeForProcessSet/,/^}/ s/iface = gloo_iface_;/iface = global_context.gloo_iface_;/' "$file"
  grep -q 'iface = global_context.gloo_iface_;' "$file" || die "there is nothing to mend in $file: is this Horovod $version?"
}

install() {
  /usr/bin/python3 -c 'import torch' 2>/dev/null || die "python3-torch is not installed: deploy/packages.sh test"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  provide_headers
  rm -rf "$venv"
  mkdir -p "$folder"
  /usr/bin/python3 -m venv --system-site-packages "$venv" || die "deploy/packages.sh lint installs python3-venv"
  # Horovod's setup.py imports these, and pip must not build in an environment that lacks PyTorch.
  "$venv/bin/pip" install -q 'setuptools<70' wheel packaging cffi cloudpickle psutil pyyaml
  provide_source
  say "building Horovod $version"
  local log=$folder/build.log
  HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_GLOO=1 \
    HOROVOD_WITHOUT_MPI=1 HOROVOD_CPU_OPERATIONS=GLOO MAKEFLAGS=${MAKEFLAGS:--j1} \
    "$venv/bin/pip" install -v --no-build-isolation --no-deps "$source" >"$log" 2>&1 ||
    die "it cannot be built: $(grep -m 1 'error: ' "$log"); $log has all"
  works || die "it was built, but importing it fails: $("$venv/bin/python" -c 'import horovod.torch' 2>&1 | tail -n 1)"
}

main() {
  case "${1:-}" in
    --python) printf '%s\n' "$venv/bin/python" ;;
    '')
      if works; then
        say "Horovod is there already, in $folder"
      else
        install
        say "Horovod $version is in $folder"
      fi
      ;;
    *) die "there is no argument '$1'; see the comment at the top" ;;
  esac
}

main "$@"
