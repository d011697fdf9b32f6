#!/bin/bash
# Runs a command in a virtual machine that has an RDMA device: Debian's kernel with Soft-RoCE (rdma_rxe), emulated by qemu, which
# needs no KVM, no root and no RDMA hardware. The machine sees this machine's files, read-only, with a layer of its own memory over
# them. It takes some ten seconds to start.
#
#   tests/rdma/guest.sh [--memory MiB] [--seconds N] [--shared FOLDER] [--pid FILE] [--link SOCKET --number 1|2] COMMAND [ARGUMENT...]
#
# The command runs as root in the current folder, without a limit of locked memory. RUEDA_TEST_RDMA_ADDRESS is the address of the
# device's network. The device is rxe0; a machine alone has a second one, rxe1, on a network of its own. The exit status is the command's; 77: there can be no such machine here, and the text says why.
# The kernel's package is downloaded once, into RUEDA_RDMA_GUEST or ~/.cache/rueda/rdma-guest.
#
# --shared   a folder of this machine in which the command may write, as RUEDA_TEST_SHARED
# --pid      a file for the process id of qemu: who kills that takes the whole machine away
# --link     a unix socket: the RDMA device is on a network that two machines have in common, number 1, which has to be ready first,
#            and number 2; their addresses are 10.77.0.1 and 10.77.0.2
set -euo pipefail

readonly modules="virtio_pci 9pnet_virtio 9p overlay dummy virtio_net crc32_generic ib_uverbs rdma_rxe"
cache="${RUEDA_RDMA_GUEST:-$HOME/.cache/rueda/rdma-guest}"
memory=2048
seconds=300
shared=
pid_file=
link=
number=1
while [ $# -gt 0 ]; do
  case "$1" in
    --memory) memory="$2"; shift 2 ;;
    --seconds) seconds="$2"; shift 2 ;;
    --shared) shared="$(realpath "$2")"; shift 2 ;;
    --pid) pid_file="$(realpath "$2")"; shift 2 ;;
    --link) link="$(realpath "$2")"; shift 2 ;;
    --number) number="$2"; shift 2 ;;
    *) break ;;
  esac
done

cannot() {
  echo "tests/rdma/guest.sh: no guest with RDMA here: $*" >&2
  exit 77
}

[ $# -gt 0 ] || { sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
for tool in qemu-system-x86_64 busybox cpio modprobe depmod rdma dpkg-deb; do
  command -v "$tool" >/dev/null || PATH="$PATH:/usr/sbin:/sbin" command -v "$tool" >/dev/null ||
    cannot "$tool is missing (deploy/packages.sh test)"
done
export PATH="$PATH:/usr/sbin:/sbin"

# Writes the guest's first program: what it does before the command, and after it. /control is a folder of the host.
write_init() {
  cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devices /dev
give_up() { echo "guest: $*"; poweroff -f; }
while read -r module; do insmod "/modules/$module" || echo "guest: no module $module"; done </modules/order
share() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=524288,$3" "$1" "$2"; }
mkdir -p /control /host /memory /new
share control /control cache=none || give_up "no folder of the host"
share host /host ro,cache=loose || give_up "no files of the host"
mount -t tmpfs -o size=75% memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /new || give_up "no overlay"
for folder in proc sys dev tmp run; do mkdir -p "/new/$folder"; done
mount -t proc proc /new/proc
mount -t sysfs sysfs /new/sys
mount -t devtmpfs devices /new/dev
mkdir -p /new/dev/shm /new/dev/pts
mount -t devpts terminals /new/dev/pts
for folder in dev/shm run; do mount -t tmpfs memory "/new/$folder"; done
hostname rdma-guest
ip link set lo up
# Addresses can be used at once, without duplicate address detection.
for which in all default; do echo 0 >"/proc/sys/net/ipv6/conf/$which/accept_dad"; done
. /control/settings
if [ -n "$shared" ]; then
  mkdir -p /new/run/shared
  share shared /new/run/shared cache=none || give_up "no folder that is shared"
  export RUEDA_TEST_SHARED=/run/shared
fi
# One machine alone has a network of its own; two have a wire.
[ "$network" != rdma0 ] || ip link add rdma0 type dummy
ip link set "$network" mtu 4200 up
ip addr add "$address/24" dev "$network"
chroot /new rdma link add rxe0 type rxe netdev "$network" || give_up "no Soft-RoCE"
if [ "$network" = rdma0 ]; then
  ip link add rdma1 type dummy
  ip link set rdma1 mtu 4200 up
  ip addr add 10.78.0.1/24 dev rdma1
  chroot /new rdma link add rxe1 type rxe netdev rdma1 || give_up "no second device"
fi
for _ in 1 2 3 4 5 6 7 8 9 10; do
  grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && break
  usleep 200000
done
ulimit -l unlimited
ulimit -c 0
touch /control/ready
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb
export RUEDA_TEST_RDMA_ADDRESS="$address"
cp /control/command /new/run/command
chroot /new /bin/bash /run/command </dev/null >/control/output 2>&1
echo $? >/control/status
sync
poweroff -f
INIT
}

# Unpacks a kernel and makes its first file system: a shell, and the modules in the order in which they are loaded.
make_machine() {
  local package folder="$cache/new" version
  rm -rf "$folder"
  mkdir -p "$folder"/{package,files/bin,files/modules,files/proc,files/sys,files/dev}
  package="$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }')"
  [ -n "$package" ] || cannot "apt knows no linux-image-amd64 (apt-get update)"
  (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$package") || cannot "$package could not be downloaded"
  dpkg-deb -x "$folder/$package"_*.deb "$folder/package"
  version="$(ls "$folder/package/lib/modules")"
  depmod -b "$folder/package" "$version"
  cp "$folder"/package/boot/vmlinuz-* "$folder/kernel"
  cp "$(command -v busybox)" "$folder/files/bin/busybox"
  for module in $modules; do
    modprobe -S "$version" -d "$folder/package" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$folder/order"
  while read -r file; do
    cp "$file" "$folder/files/modules/"
    basename "$file" >>"$folder/files/modules/order"
  done <"$folder/order"
  write_init >"$folder/files/init"
  chmod +x "$folder/files/init"
  (cd "$folder/files" && find . | cpio -o -H newc --quiet | gzip -1) >"$folder/initrd"
  rm -rf "$folder/package" "$folder/files" "$folder"/*.deb
  rm -rf "${cache:?}/${machine:?}"
  mv "$folder" "${cache:?}/${machine:?}"
}

mkdir -p "$cache"
machine="$(sha256sum <"${BASH_SOURCE[0]}" | cut -c1-16)"  # another script, another machine
exec 9>"$cache/lock"
flock 9
[ -e "$cache/$machine/initrd" ] || make_machine
flock -u 9

control="$(mktemp -d)"
emulator=
trap 'cat "$control/output" 2>/dev/null; [ -z "$emulator" ] || kill "$emulator" 2>/dev/null || true; rm -rf "$control"' EXIT
trap 'exit 143' TERM INT
network=rdma0
options=()
if [ -n "$shared" ]; then
  options+=(-fsdev "local,id=shared,path=$shared,security_model=none" -device "virtio-9p-pci,fsdev=shared,mount_tag=shared")
fi
if [ -n "$pid_file" ]; then options+=(-pidfile "$pid_file"); fi
if [ -n "$link" ]; then
  network=eth0
  server=off
  [ "$number" != 1 ] || server=on
  options+=(-netdev "stream,id=link,server=$server,addr.type=unix,addr.path=$link"
    -device "virtio-net-pci,netdev=link,mac=52:54:00:77:00:0$number,romfile=,host_mtu=9000")
fi
printf 'address=%q\nnetwork=%q\nshared=%q\n' "10.77.0.$number" "$network" "$shared" >"$control/settings"
{
  printf 'cd %q || exit 125\nexec' "$PWD"
  printf ' %q' "$@"
  echo
} >"$control/command"

# A guest that is starved while it starts is started again.
for _ in 1 2 3; do
  rm -f "$control/ready" "$control/status"
  timeout -k 5 "$seconds" qemu-system-x86_64 -accel tcg,thread=multi,tb-size=256 -cpu max -smp 2 -m "$memory" \
    -nodefaults -no-user-config -nographic -vga none -serial stdio -monitor none -no-reboot \
    -kernel "$cache/$machine/kernel" -initrd "$cache/$machine/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog mitigations=off nokaslr random.trust_cpu=on net.ifnames=0" \
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=host,mount_tag=host \
    -fsdev local,id=control,path="$control",security_model=none -device virtio-9p-pci,fsdev=control,mount_tag=control \
    "${options[@]}" \
    </dev/null >"$control/console" 2>&1 &
  emulator=$!
  for ((i = 0; i < 480; i++)); do
    if [ -e "$control/ready" ] || ! kill -0 "$emulator" 2>/dev/null; then break; fi
    sleep 0.5
  done
  if [ -e "$control/ready" ]; then
    wait "$emulator" || true
    emulator=
    break
  fi
  kill "$emulator" 2>/dev/null || true
  wait "$emulator" || true
  emulator=
done
if [ ! -e "$control/ready" ]; then
  cat "$control/console"
  cannot "qemu did not start one in three tries"
fi
[ -e "$control/output" ] || cat "$control/console"
[ -s "$control/status" ] && exit "$(cat "$control/status")"
echo "tests/rdma/guest.sh: the guest ended before the command did, or took longer than $seconds s" >&2
exit 125
