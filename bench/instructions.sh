#!/usr/bin/env bash
# Instructions and allocations of one engine operation on the memory store, counted by valgrind: they do not depend on
# the machine's mood, as times do. Fails when one passes its bound, which is about five per cent above what was measured
# on x86-64 with rustc 1.95 and glibc 2.36. Whoever makes the engine cheaper lowers the bound.
#
#   bench/instructions.sh            counts all and compares
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# operation, most instructions, most allocations. The caller's own share (the call's shown key: one) is in them.
bounds='
run      7750   7
begin    7600   7
replay   4600   3
'
few=1000 many=3000

cargo build --release --locked --quiet -p semel-core --example cost
target=$(cargo metadata --format-version 1 --no-deps --locked | jq -r .target_directory)
cost=$target/release/examples/cost
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# counted TOOL KIND N: the tool's total for the whole process.
counted() {
    local tool=$1 kind=$2 n=$3 out=--callgrind-out-file=/dev/null line='/Collected :/ { print $4 }'
    if [[ $tool == dhat ]]; then
        out=--dhat-out-file=/dev/null line='/Total: / { gsub(",", ""); print $(NF - 1) }'
    fi
    if ! valgrind --tool="$tool" "$out" "$cost" "$kind" "$n" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    awk "$line" "$log"
}

# each TOOL KIND: per operation, without what starting costs.
each() {
    local less more
    less=$(counted "$1" "$2" $few)
    more=$(counted "$1" "$2" $many)
    # To the nearest whole: tables that grow now and then are shared by all operations.
    echo $(((more - less + (many - few) / 2) / (many - few)))
}

good=0 bad=0
check() {
    local kind=$1 what=$2 got=$3 most=$4
    if ((got > 0 && got <= most)); then
        good=$((good + 1)) verdict=ok
    else
        bad=$((bad + 1)) verdict='TOO MANY'
    fi
    printf '%-8s %6d %-13s at most %6d  %s\n' "$kind" "$got" "$what" "$most" "$verdict"
}

while read -r kind instructions allocations; do
    [[ -n $kind ]] || continue
    check "$kind" instructions "$(each callgrind "$kind")" "$instructions"
    check "$kind" allocations "$(each dhat "$kind")" "$allocations"
done <<<"$bounds"

printf 'checked: %d passed, %d failed\n' "$good" "$bad"
((bad == 0))
