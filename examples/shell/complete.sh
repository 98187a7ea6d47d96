#!/usr/bin/env bash
# Asks Sluice one question over HTTP: complete.sh "What is an actor?"
# `sluice complete "What is an actor?"` does the same over NATS.
set -euo pipefail

url=${SLUICE_URL:-http://127.0.0.1:12435/v1}
request=$(jq -n --arg prompt "$*" --arg process "${PROCESS:-shell-example}" --arg provider "${PROVIDER:-}" \
    '{messages: [{role: "user", content: $prompt}], process: $process, provider: $provider}')
headers=(-H 'Content-Type: application/json' -H "X-LLM-Class: ${CLASS:-interactive}")
if [[ -n ${SLUICE_HTTP_TOKEN:-} ]]; then
    headers+=(-H "Authorization: Bearer $SLUICE_HTTP_TOKEN")
fi

if ! answer=$(curl -sS --fail-with-body "${headers[@]}" -d "$request" "${url%/v1}/api/complete"); then
    jq -r '"\(.error.kind): \(.error.message)"' <<<"$answer" >&2
    exit 1
fi
jq -r .content <<<"$answer"
jq -r '"\(.provider)/\(.model), \(.usage.totalTokens) tokens"' <<<"$answer" >&2
