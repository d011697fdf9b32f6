#!/bin/bash
# Packs what runs on another x86-64 Linux with glibc 2.36 or later, where nothing can be installed: programs, the client
# library, the Python package, the GPU plugin where there is a CUDA toolkit, and the GPU tests and benches with their
# scripts.
#
#   deploy/bundle.sh [FILE]          build/rueda-bundle.tar.gz
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly file="${1:-build/rueda-bundle.tar.gz}"
readonly build=build/bundle
readonly most_bytes=60000000

say() { echo "bundle: $*"; }

write_readme() {
  cat <<END
# Rueda, in one folder

Made from $1 by deploy/bundle.sh, for x86-64 Linux with glibc 2.36 or later. $2
Nothing needs to be installed, and the folder may be anywhere.

    bin/ruedarun -np 2 --virtual-nodes 2 bin/rueda-bench allreduce -b 4K -e 1M -f 4
    PYTHONPATH=python bin/ruedarun -np 2 python3 train.py      # with numpy, and PyTorch for rueda.torch
    tests/gpu/run.sh results                                  # on a machine with a GPU: tests and tables

tests/gpu/run.sh and bench/gpu/run.sh end with 77 where there is no GPU. lib/ has the libraries that the programs need
but libc's; bin/ and lib/ stay side by side. Rueda is under the Apache License 2.0 (LICENSE), libraries of other
people are as Debian has them, under their own licences (licences/).
END
}

# Copies the licence of each package that is linked in, or has a library in the folder.
copy_licences() {
  local package library
  {
    deploy/packages.sh --list build libraries
    printf '%s\n' libgrpc-dev libabsl-dev libc-ares-dev libre2-dev libstdc++6 libgcc-s1
    for library in "$root"/lib/lib*.so.*; do
      # No package has the libraries of this tree.
      dpkg-query -S "*/$(basename "$library")" 2>/dev/null | cut -d: -f1 || true
    done
  } | sort -u | while read -r package; do
    if [ -e "/usr/share/doc/$package/copyright" ]; then
      cp -L "/usr/share/doc/$package/copyright" "$root/licences/$package"
    fi
  done
}

deploy/packages.sh build
# Several checkouts share what ccache holds.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
cmake --preset bundle >/dev/null
cmake --build --preset bundle

stage="$(mktemp -d)"
trap 'rm -rf "$stage"' EXIT
readonly root="$stage/rueda"
cmake --install "$build" --component bundle --prefix "$root" --strip >/dev/null

mkdir -p "$root/python" "$root/client" "$root/tests/gpu" "$root/tests/integration/"{device,distributed,support,torch} "$root/bench/gpu" "$root/licences"
cp LICENSE "$root/"
copy_licences
cp tests/gpu/run.sh tests/gpu/training_test.py tests/gpu/train_rank.py "$root/tests/gpu/"
for name in run support/{harness,device_harness,device_support,torch_on_gpu,torch_support} \
  device/device_{across,adds_test,containers_test,declared,free,gpus_test,nccl,nccl_test,rank,rings_test,staged,test,tools,torch_test} \
  torch/torch_{device,device_death,rank} distributed/distributed_{device,device_death,rank}; do
  cp "tests/integration/$name.py" "$root/tests/integration/$name.py"
done
cp bench/gpu/run.sh "$root/bench/gpu/"
cp -r client/python/rueda "$root/python/"
find "$root/python" -name __pycache__ -prune -exec rm -r {} +
# The package looks for librueda there first.
ln -s ../../lib "$root/python/rueda/lib"
# The tests look for the package there.
ln -s ../python "$root/client/python"

plugin="It has the GPU plugin, lib/librueda_cuda.so."
if [ ! -e "$root/lib/librueda_cuda.so" ]; then
  plugin="It has no GPU plugin: no CUDA toolkit was there."
  say "no CUDA toolkit was found: the bundle has no GPU plugin" >&2
fi
made_from="$(git describe --always --dirty --tags 2>/dev/null || echo 'a tree without git')"
write_readme "$made_from" "$plugin" >"$root/README.md"

mkdir -p "$(dirname "$file")"
tar -C "$stage" --owner=0 --group=0 --sort=name -czf "$file" rueda
bytes="$(stat -c %s "$file")"
say "$file, $bytes bytes, from $made_from"
if [ "$bytes" -ge "$most_bytes" ]; then
  say "it is to be smaller than $most_bytes bytes" >&2
  exit 1
fi
