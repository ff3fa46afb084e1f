#!/usr/bin/env bash
# Builds a real Kubernetes control plane for the end-to-end tests, once, from Debian's source package.
#
#   tools/kubernetes.sh               builds it unless it is there; prints the folder of its programs
#   tools/kubernetes.sh --background  starts that, returns at once; it ends with the process that called (make)
#   tools/kubernetes.sh --where       builds nothing: the folder, or on stderr why there is none (exit code 77: nothing
#                                     is broken, this machine has none)
#   tools/kubernetes.sh --kubelet     the same of a kubelet, which no test needs: for tools/real-kubelet.sh
#
# The programs are in $RUBATO_CACHE (~/.cache/rubato)/kubernetes-VERSION: kube-apiserver, kube-controller-manager,
# kube-scheduler, kubectl. The folder appears when all of them are there. KUBERNETES_JOBS: how many compilers at a time.
# Nothing of the machine's apt configuration changes: the source entry is in a folder of our own.
set -euo pipefail

version=1.20.2
programs=(kube-apiserver kube-controller-manager kube-scheduler kubectl)
packages=1790 # that `go build -v` names for them; only the progress depends on it
go=/usr/lib/go-1.19/bin
libraries=/usr/share/gocode/src
cache=${RUBATO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rubato}
place=$cache/kubernetes-$version
work=$cache/kubernetes-build
log=$cache/kubernetes-build.log
reason=$cache/kubernetes-unavailable
tags=providerless # without the parts for clouds, which take as long to compile as all the rest
if [[ ${1:-} == --kubelet ]]; then
  shift
  programs=(kubelet) packages=1500 tags=providerless,dockerless
  place=$cache/kubelet-$version work=$cache/kubelet-build log=$cache/kubelet-build.log reason=$cache/kubelet-unavailable
fi

report() { echo "kubernetes: $*" >&2; }

# This machine cannot build it, and that is no fault of the project: tests that need it are left out.
unavailable() {
  echo "no Kubernetes: $*; fix: tools/kubernetes.sh" >"$reason"
  report "$*; the tests that need Kubernetes will be skipped"
  exit 77
}

broken() {
  report "$*; the end of $log:"
  tail -n 20 "$log" >&2
  echo "Kubernetes could not be built: $*; see $log" >"$reason"
  exit 1
}

where() {
  if [[ ${KUBERNETES:-yes} == no ]]; then
    echo "left out: KUBERNETES=no" >&2
    exit 77
  elif [[ -d $place ]]; then
    echo "$place"
  elif [[ -s $reason ]]; then
    cat "$reason" >&2
    if grep -q '^no Kubernetes' "$reason"; then exit 77; else exit 1; fi
  else
    echo "no Kubernetes yet; fix: tools/kubernetes.sh" >&2
    exit 77
  fi
}

# The source package, by the mirror that this machine takes its Debian packages from.
download() {
  local site
  site=$(apt-get indextargets 'Created-By: Packages' 'Origin: Debian' 'Component: main' \
    --format '$(SITE) $(CODENAME)' 2>/dev/null | awk '$2 == "bookworm" { print $1; exit }')
  mkdir -p apt/parts apt/lists/partial apt/cache/archives/partial
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "${site:-http://deb.debian.org/debian} bookworm main" >apt/parts/source.list
  local apt=(apt-get -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$PWD/apt/parts"
    -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" -o APT::Sandbox::User=root
    -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30)
  "${apt[@]}" update && "${apt[@]}" --only-source --download-only source kubernetes
}

# Kubernetes 1.20 was written for Go 1.15. Two of its libraries rely on the inside of that: with ours, the API server
# crashes at the first custom resource, and takes an empty text in one for null.
mend() {
  local vendor=$work/go/src/k8s.io/kubernetes/vendor reflect=github.com/modern-go/reflect2
  rm -rf "${vendor:?}/$reflect"
  cp -r "$libraries/$reflect" "$vendor/$reflect"
  local file=$vendor/k8s.io/kube-openapi/pkg/validation/validate/type.go
  local wrong='data == nil || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))'
  grep -qF "$wrong" "$file" || broken "the source is not what was expected: $file"
  sed -i "s/if $wrong {/if data == nil {/" "$file"
}

# `go build -v` names each package once it begins with it. At a terminal one line that changes, elsewhere ten lines.
show_progress() {
  local done=0 percent last=0 line
  while read -r line; do
    echo "$line" >>"$log"
    [[ $line == */* ]] || continue
    percent=$((++done * 100 / packages))
    if ((percent > 99)); then percent=99; fi
    if [[ -t 2 ]]; then
      if ((done % 10 == 0)); then printf '\rkubernetes: compiled %d %% ' "$percent" >&2; fi
    elif ((percent >= last + 10)); then
      last=$((percent / 10 * 10))
      report "compiled $last %"
    fi
  done
  if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
}

compile() {
  local jobs=${KUBERNETES_JOBS:-$(nproc)} vendor=k8s.io/kubernetes/vendor/k8s.io
  export GOPATH=$work/go GOCACHE=$work/go-cache GO111MODULE=off CGO_ENABLED=0 GOFLAGS= GOMAXPROCS=$jobs
  export PATH=$go:$PATH HOME=$work
  cd "$GOPATH/src/k8s.io/kubernetes"
  report "generating code (a minute or two)"
  make generated_files >>"$log" 2>&1 || broken "make generated_files failed"
  # A client that is told v0.0.0 does not believe in the features of 1.20.
  local flags="-s -w" name
  for name in "$vendor/component-base/version" "$vendor/client-go/pkg/version"; do
    flags+=" -X $name.gitVersion=v$version -X $name.gitMajor=1 -X $name.gitMinor=20"
  done
  mkdir -p "$work/bin"
  go build -p "$jobs" -v -trimpath -tags "$tags" -ldflags "$flags" -o "$work/bin/" "${programs[@]/#/./cmd/}" 2>&1 |
    show_progress || broken "go build failed"
}

build() {
  for tool in "$go/go" dpkg-source make rsync; do
    command -v "$tool" >/dev/null || unavailable "$tool is missing (tools/install-packages.sh test)"
  done
  [[ -d $libraries/github.com/modern-go/reflect2 ]] || unavailable "golang-github-modern-go-reflect2-dev is missing"
  command -v apt-get >/dev/null || unavailable "its source is Debian's, and this machine has no apt-get"
  rm -rf "$work" "$reason"
  mkdir -p "$work"
  date +%s >"$work/began" # tests wait for it only so long
  trap 'cd / && rm -rf "$work"' EXIT # after kill -9, the next build does it
  : >"$log"
  cd "$work"
  report "building $version from Debian's source: some minutes, once; $log"
  download >>"$log" 2>&1 || unavailable "its source cannot be downloaded ($(grep -m1 ^[EW]: "$log" || tail -n1 "$log"))"
  mkdir -p go/src/k8s.io
  dpkg-source -x ./*.dsc go/src/k8s.io/kubernetes >>"$log" 2>&1 || broken "the source cannot be unpacked"
  mend
  compile
  for program in "${programs[@]}"; do [[ -x $work/bin/$program ]] || broken "$program was not made"; done
  mv -T "$work/bin" "$place"
  report "ready: $place"
}

# Builds in a session of its own, and ends it when the caller is gone: a ^C at `make` must not leave compilers behind.
background() {
  if [[ -d $place ]] || ! flock --nonblock "$cache/kubernetes.lock" rm -f "$reason"; then exit 0; fi
  local owner=$PPID
  while [[ $(ps -o comm= -p "$owner") == sh ]]; do owner=$(ps -o ppid= -p "$owner" | tr -d ' '); done
  KUBERNETES_OWNER=$owner setsid "$0" </dev/null >/dev/null 2>&1 &
  report "building it in the background, once; $log"
}

end_with_owner() {
  while kill -0 "$KUBERNETES_OWNER" 2>/dev/null && kill -0 $$ 2>/dev/null; do sleep 1; done
  kill -- -$$ 2>/dev/null || true
}

mkdir -p "$cache"
case ${1:-} in
--where) where; exit ;;
--background) background; exit ;;
"") ;;
*) report "unknown option $1"; exit 2 ;;
esac
if [[ ${KUBERNETES:-yes} == no ]]; then where; fi
if [[ ! -d $place ]]; then
  exec 9>"$cache/kubernetes.lock"
  if ! flock --nonblock 9; then
    report "waiting for the build that runs already"
    until flock --wait 30 9; do report "compiled $(($(grep -c / "$log") * 100 / packages)) %"; done
    if [[ -d $place || -s $reason ]]; then where; exit; fi
  fi
  if [[ ! -d $place ]]; then
    renice -n 15 $$ >/dev/null
    if [[ -n ${KUBERNETES_OWNER:-} ]]; then end_with_owner 9>&- & fi
    build
  fi
fi
echo "$place"
