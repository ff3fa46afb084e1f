#!/usr/bin/env bash
# Runs every fuzzer of the clang build in turn, and stops at the first crash with the command that replays it.
#
#   tools/fuzz.sh [SECONDS_EACH]     default: a minute in all
#
# Inputs that reach new code are kept in build/corpus/NAME; tests/corpus/NAME holds those worth committing.
set -euo pipefail
cd "$(dirname "$0")/.."

shopt -s nullglob
fuzzers=(build/clang/fuzz/*_fuzz)
if ((${#fuzzers[@]} == 0)); then
  echo "fuzz: no fuzzer in build/clang/fuzz; build them with: make fuzz" >&2
  exit 0
fi
seconds=${1:-$((60 / ${#fuzzers[@]} + 1))}

for fuzzer in "${fuzzers[@]}"; do
  name=${fuzzer##*/}
  corpus=build/corpus/$name
  crashes=build/crashes/$name
  mkdir -p "$corpus" "$crashes"
  seeds=()
  if [[ -d tests/corpus/$name ]]; then seeds=("tests/corpus/$name"); fi
  if ! "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$crashes/" "$corpus" "${seeds[@]}" >"$crashes/log" 2>&1; then
    tail -n 60 "$crashes/log"
    input=$(sed -n 's/.*Test unit written to //p' "$crashes/log" | tail -n 1)
    echo "fuzz: $name failed; replay: $fuzzer ${input:-(no input was kept: see $crashes/log)}" >&2
    exit 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$crashes/log")
  echo "fuzz: $name: $runs inputs in ${seconds}s, nothing found"
done
