#!/usr/bin/env bash
# fuzz.sh TIME: run each fuzz target of the module for TIME. A failing input is
# kept in the package's testdata/fuzz by go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
while IFS=: read -r file name; do
    echo "== $(dirname "$file") $name"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-20s}" "./$(dirname "$file")" || status=1
done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' |
    xargs grep -HoE '^func Fuzz[A-Za-z0-9_]+' | sed 's/func //')
exit $status
