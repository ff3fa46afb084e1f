#!/usr/bin/env bash
# A provider's program in bash: hands out machines from a text file. Needs jq. The protocol: docs/external-providers.md.
#
#   provider:
#     type: external
#     command: [./static.sh, machines.txt]
#
# machines.txt has one [user@]host[:port] a line; the first one is the head's, the others are handed out in their order.
# Who has which machine is kept as files: taken/HOST holds the node's name. A link is made in one step and fails when
# the name is there already, so that neither a crash nor a second copy of this program can give a machine away twice.
set -uo pipefail

list=${1:?"usage: static.sh FILE, with one [user@]host[:port] a line"}
taken=""

machines() { grep -E '^[A-Za-z0-9@._:-]+$' "$list"; }
result() { jq -cn --argjson id "$id" --argjson result "$1" '{id: $id, result: $result}'; }
failure() { jq -cn --argjson id "$id" --arg code "$1" --arg message "$2" '{id: $id, error: {code: $code, message: $message}}'; }
machine() { jq -cn --arg node "$1" --arg host "$2" '{node: $node, id: $host, host: $host}'; }

# The host of a node, or nothing.
host_of() {
  local file
  for file in "$taken"/*; do
    if [[ -f $file && $(<"$file") == "$1" ]]; then
      basename "$file"
      return
    fi
  done
}

hello() {
  local state
  state=$(jq -r .params.state_folder <<<"$line")
  if [[ ! -r $list ]]; then
    failure invalid "cannot read $list"
    return
  fi
  taken=$state/taken
  mkdir -p "$taken" "$state/new"
  result "$(machines | tail -n +2 | jq -cRn '{protocol: 1, name: "static.sh", machines_stay: true, hosts: [inputs]}')"
}

create() {
  local node=$1 host
  if [[ $(jq -r .params.head <<<"$line") == true ]]; then
    result "$(machine "$node" "$(machines | head -n 1)")"
    return
  fi
  host=$(host_of "$node")
  if [[ -n $host ]]; then
    result "$(machine "$node" "$host")"
    return
  fi
  rm -f "$taken/../new/$$" # a file of its own for each node: a link shares what it holds
  printf '%s' "$node" >"$taken/../new/$$"
  while IFS= read -r host; do
    if ln "$taken/../new/$$" "$taken/$host" 2>/dev/null; then
      result "$(machine "$node" "$host")"
      return
    fi
  done < <(machines | tail -n +2)
  failure no-capacity "all machines in $list are taken"
}

describe() {
  local host
  host=$(host_of "$1")
  if [[ -n $host ]]; then result "$(machine "$1" "$host")"; else result null; fi
}

remove() {
  local host
  host=$(host_of "$1")
  if [[ -z $host ]]; then
    failure not-found "node $1 has no machine"
  else
    rm -f "$taken/$host"
    result '{}'
  fi
}

list_nodes() {
  local file nodes=()
  for file in "$taken"/*; do
    if [[ -f $file ]]; then nodes+=("$(machine "$(<"$file")" "$(basename "$file")")"); fi
  done
  result "$(printf '%s\n' "${nodes[@]+"${nodes[@]}"}" | jq -cs '{nodes: .}')"
}

while IFS= read -r line; do
  id=$(jq .id <<<"$line")
  node=$(jq -r '.params.node // ""' <<<"$line")
  case $(jq -r .method <<<"$line") in
    hello) hello ;;
    create) create "$node" ;;
    describe) describe "$node" ;;
    remove) remove "$node" ;;
    list) list_nodes ;;
    *) failure unsupported "static.sh does not know this method" ;;
  esac
done
