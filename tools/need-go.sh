#!/usr/bin/env bash
# Ends with what to do when there is no Go that can build this module.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

need=$(sed -n 's/^go //p' go.mod)
if ! command -v go >/dev/null; then
    echo "Go $need or newer is needed and there is no go command: install it from https://go.dev/dl/" >&2
    exit 1
fi
# A go command that is too old fails here, and one that may fetch a newer
# toolchain by itself (GOTOOLCHAIN=auto, the default) passes.
have=$(GOFLAGS='' go env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//')
oldest=$(printf '%s\n%s\n' "$need" "${have:-0}" | sort -V | head -n1)
if [[ $oldest != "$need" && ${have:-0}.0 != "$need" ]]; then
    echo "Go $need or newer is needed, and this is ${have:-older}: install it from https://go.dev/dl/" >&2
    exit 1
fi
