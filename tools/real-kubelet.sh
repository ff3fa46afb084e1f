#!/usr/bin/env bash
# A real kubelet with containerd beside the tests' Kubernetes, for a look at real pods by hand. Root only.
#
#   tools/real-kubelet.sh                 until ^C; prints what to export for kubectl and rubato
#   tools/real-kubelet.sh -- COMMAND...   a command with KUBECONFIG and PATH set; then its end
#
# Builds the kubelet (1.20, Debian's source) into $RUBATO_CACHE once, after the control plane of tools/kubernetes.sh.
# No test uses it: a kubelet takes a machine for its own, and minutes where others compile. tests/e2e/kube_real_node.py
# says which images its pods may have.
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
"$tools/kubernetes.sh" >/dev/null
kubelet=$("$tools/kubernetes.sh" --kubelet)
exec /usr/bin/python3 "$tools/../tests/e2e/kube_real_node.py" --kubelet "$kubelet" "$@"
