#!/usr/bin/env bash
# Installs what the examples import, once: the Python packages in a virtual
# environment under .examples, the Node packages beside the Node examples. Both
# folders are ignored by git. A second run asks no registry.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "examples/install.sh: $*" >&2; }
missing() { say "$*"; exit 1; }

# stamped FILE INPUTS...: FILE says that these inputs are installed in this folder.
stamped() { [[ -f $1 && $(<"$1") == "$(stamp "${@:2}")" ]]; }
stamp() { { cat "$@"; pwd; } | cksum; }

install_python() {
    command -v python3 >/dev/null || missing "python3 is needed (3.10 or newer)"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || missing "python3 is older than 3.10"
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing "python3 has no venv module (on Debian: apt-get install python3-venv)"
    rm -rf .examples/venv
    python3 -m venv .examples/venv
    .examples/venv/bin/pip --disable-pip-version-check -q install --no-input -r examples/python/requirements.txt ||
        missing "the Python packages could not be installed; see above"
    stamp examples/python/requirements.txt >.examples/python-installed
}

install_node() {
    command -v node >/dev/null || missing "node is needed (20 or newer)"
    command -v npm >/dev/null || missing "npm is needed"
    npm --prefix examples/node ci --no-fund --no-audit --loglevel=error >&2 ||
        missing "the Node packages could not be installed; see above"
    stamp examples/node/package-lock.json >.examples/node-installed
}

for program in curl jq; do
    command -v $program >/dev/null || missing "$program is needed by the shell example (on Debian: apt-get install $program)"
done
mkdir -p .examples
exec 9>.examples/lock
if command -v flock >/dev/null; then
    flock 9 # two test packages may ask at once
fi
stamped .examples/python-installed examples/python/requirements.txt && [[ -x .examples/venv/bin/python ]] || install_python
stamped .examples/node-installed examples/node/package-lock.json && [[ -d examples/node/node_modules ]] || install_node
