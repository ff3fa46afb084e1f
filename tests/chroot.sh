#!/usr/bin/env bash
# The static binary needs nothing but a kernel: it runs in an empty chroot. Exits with 77 where chroot is impossible.
#
#   tests/chroot.sh build/rubato
set -euo pipefail
binary=${1:-build/rubato}

fail() {
  echo "chroot.sh: $*" >&2
  exit 1
}

# What the kernel would load besides the binary: an interpreter (INTERP) or shared libraries (NEEDED).
elf=$(readelf --wide --program-headers --dynamic "$binary")
if grep -E 'INTERP|NEEDED' <<<"$elf"; then fail "$binary is not static"; fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp "$binary" "$root/rubato"

PATH+=:/usr/sbin
enter=("$(command -v chroot)")
if ((EUID != 0)); then enter=(/usr/bin/unshare --map-root-user "${enter[@]}"); fi
if ! why=$("${enter[@]}" "$root" /nothing 2>&1) && [[ $why == *"Operation not permitted"* ]]; then
  echo "skipped: no chroot here without more rights: $why"
  exit 77
fi

help=$(env -i "${enter[@]}" "$root" /rubato --help) || fail "rubato --help ended with $?"
[[ $help == *run* ]] || fail "rubato --help does not speak of run: $help"
version=$(env -i "${enter[@]}" "$root" /rubato version --json) || fail "rubato version --json ended with $?"
[[ $version == "{"*'"version"'*"}" ]] || fail "rubato version --json: $version"
[[ $(ls -A "$root") == rubato ]] || fail "it left files in the root: $(ls -A "$root")"
echo "runs in an empty chroot: $version"
