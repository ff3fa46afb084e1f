#!/usr/bin/env bash
# Installs the Debian packages that are missing. Asks nothing, removes nothing, says what it installs.
#
#   tools/install-packages.sh build test     groups: build test check demo
set -euo pipefail

declare -A groups=(
  [build]="g++ cmake ninja-build ccache make git pkg-config libboost-dev libssl-dev nlohmann-json3-dev libyaml-dev
           libfmt-dev zlib1g-dev libzstd-dev libsqlite3-dev libexpat1-dev"
  [test]="libgtest-dev librapidcheck-dev python3 python3-venv python3-torch python3-numpy etcd-server iproute2 iptables
          openssl procps tmux screen openssh-server openssh-client rsync zstd zsh fish
          docker.io podman busybox-static jq dbus-user-session systemd chromium chromium-driver fonts-dejavu-core
          python3-html5lib python3-botocore awscli python3-yaml golang-1.19-go
          golang-github-modern-go-reflect2-dev dpkg-dev xz-utils"
  [check]="libgtest-dev librapidcheck-dev python3 clang-19 libclang-rt-19-dev clang-format"
  [demo]="python3 python3-torch python3-numpy procps"
)

wanted=""
for group in "${@:-build}"; do
  if [[ -z ${groups[$group]-} ]]; then
    echo "install-packages: no group '$group'; one or more of: build test check demo" >&2
    exit 2
  fi
  wanted+=" ${groups[$group]}"
done
wanted=$(printf '%s\n' $wanted | sort -u)

if ! command -v dpkg-query apt-get >/dev/null; then
  echo "install-packages: this is for Debian 12. Elsewhere, install what these Debian packages hold, then go on:" >&2
  echo $wanted >&2
  exit 0 # CMake says what is really missing
fi

missing=()
for package in $wanted; do
  # Docker's own packages conflict with Debian's; either will do.
  if [[ $package == docker.io ]] && command -v dockerd >/dev/null; then continue; fi
  if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} == 0)); then exit 0; fi

if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install-packages: missing: ${missing[*]}" >&2
    echo "  fix: as root, run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  # At a terminal sudo may ask for its password; elsewhere it fails instead of waiting for one.
  if [[ -t 0 ]]; then exec sudo "$0" "$@"; else exec sudo -n "$0" "$@"; fi
fi

echo "Installing ${#missing[@]} Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0)

# Debian starts etcd, sshd, Docker and containerd when they are installed, and at each boot. The tests start their own.
declare -A services=([etcd-server]="etcd" [openssh-server]="ssh" [docker.io]="docker docker.socket containerd")
quiet=()
for package in "${missing[@]}"; do quiet+=(${services[$package]-}); done
policy=/usr/sbin/policy-rc.d
if ((${#quiet[@]})) && [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\ncase " %s " in *" $1 "*) exit 101 ;; esac\nexit 0\n' "${quiet[*]}" >"$policy"
  chmod +x "$policy"
fi

"${apt[@]}" update
"${apt[@]}" install -y --no-remove --no-install-recommends "${missing[@]}"

if ((${#quiet[@]})) && command -v systemctl >/dev/null; then
  systemctl disable --quiet "${quiet[@]}" ||
    echo "install-packages: could not disable ${quiet[*]}; they start at boot" >&2
fi
