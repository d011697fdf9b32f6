#!/bin/bash
# Installs the Debian packages of the sections named (build, runtime, test, bench; see packages.txt)
# that are missing. Does nothing, and needs no rights, when nothing is missing.
#
#   deploy/packages.sh build runtime        install
#   deploy/packages.sh --list build         print the names
#   deploy/packages.sh --missing build      print those that are missing
set -euo pipefail

list_file="${BASH_SOURCE[0]%/*}/packages.txt"

say() { printf 'packages: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

list_packages() {
  local section
  for section in "$@"; do
    grep -qx "\[$section\]" "$list_file" ||
      die "there is no section '$section' in $list_file; it has $(grep -o '^\[[a-z]*\]' "$list_file" | tr '\n' ' ')"
  done
  awk -v sections=" $* " '
    /^\[/ { section = substr($1, 2, length($1) - 2); next }
    /^[a-z0-9]/ && index(sections, " " section " ") { print $1 }' "$list_file"
}

list_missing() {
  local package
  list_packages "$@" | while read -r package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] ||
      printf '%s\n' "$package"
  done
}

install_packages() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "these packages are missing, and this user is not root and has no sudo; as root, run: apt-get install $*"
    as_root=(sudo)
  fi
  # Waits for another apt to end instead of failing, and asks no questions.
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
    apt-get -y -qq -o DPkg::Lock::Timeout=300)

  # An old package index may know all of them: then the download fails, and the index is fetched after all.
  if ! apt-get install -qq --simulate --no-install-recommends "$@" >/dev/null 2>&1 ||
    ! "${apt[@]}" install --no-install-recommends "$@" </dev/null >&2; then
    say "fetching the package index"
    "${apt[@]}" update >&2 || die "apt-get update failed, see above"
    "${apt[@]}" install --no-install-recommends "$@" </dev/null >&2 ||
      die "apt-get could not install: $*; see above"
  fi

  # The package brings promtool, which the tests need, and a server, which nobody asked for.
  case " $* " in
    *" prometheus "*)
      if [ -d /run/systemd/system ]; then
        say "disabling the prometheus service, of which only promtool is used"
        "${as_root[@]}" systemctl disable --now prometheus.service >&2 || true
      fi
      ;;
  esac
}

main() {
  local mode=install
  case "${1:-}" in
    --list | --missing)
      mode="${1#--}"
      shift
      ;;
  esac
  [ $# -gt 0 ] || die "name at least one section of $list_file, for example: build"
  if [ "$mode" = list ]; then
    list_packages "$@"
    return
  fi
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    die "this is not a Debian-like system (no dpkg-query or apt-get); install by hand what $list_file lists"
  fi
  list_packages "$@" >/dev/null
  local missing
  mapfile -t missing < <(list_missing "$@")
  if [ "$mode" = missing ]; then
    [ ${#missing[@]} -eq 0 ] || printf '%s\n' "${missing[@]}"
  elif [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    install_packages "${missing[@]}"
  fi
}

main "$@"
