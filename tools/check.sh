#!/usr/bin/env bash
# Everything but the tests: formatting, vet, staticcheck, tidy modules. Every
# check runs, so that all faults are seen at once. No tracked file is changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=()
check() { # check NAME HINT COMMAND...: output or a bad status is a fault
    local name=$1 hint=$2 out
    shift 2
    if out=$("$@" 2>&1) && [[ -z $out ]]; then
        echo "ok    $name"
        return
    fi
    echo "FAIL  $name${hint:+: $hint}"
    sed 's/^/      /' <<<"$out"
    failed+=("$name")
}

tool() { go tool -modfile=tools/go.mod "$@"; }
go_files() { git ls-files -z --cached --others --exclude-standard -- '*.go'; }
formatted() { go_files | xargs -0 go tool -modfile=tools/go.mod gofumpt -l; }
state() { git diff HEAD | sha256sum; }

before=$(state)
check gofumpt "make fmt" formatted
check vet "" go vet ./...
check "vet (real-model test)" "" go vet -tags e2e_model ./e2e
check "vet (real claude test)" "" go vet -tags claude_cli ./providers/claudecode
check "vet (judges)" "" go -C judge vet ./...
check staticcheck "" tool staticcheck ./...
check "go.mod tidy" "go mod tidy" go mod tidy -diff
check "tools/go.mod tidy" "go -C tools mod tidy" go -C tools mod tidy -diff
check "judge/go.mod tidy" "go -C judge mod tidy" go -C judge mod tidy -diff
check "module sums" "" bash -c 'go mod verify >/dev/null'
check "shell scripts" "" bash -c 'git ls-files -z -- "*.sh" .ci/run | xargs -0 -n1 bash -n'
if [[ $(state) != "$before" ]]; then
    echo "FAIL  a check changed a tracked file"
    failed+=("tracked files")
fi
if ((${#failed[@]} > 0)); then
    (IFS=,; echo "make check: failed: ${failed[*]}")
    exit 1
fi
