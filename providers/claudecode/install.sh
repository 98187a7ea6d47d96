#!/usr/bin/env bash
# Installs the claude programs that `make test-claude` asks, once, into an ignored
# folder: the versions of testdata/programs, by their lock files, without running
# any script of the packages. Prints VERSION=PATH for each.
#
#   providers/claudecode/install.sh           install if needed
#   providers/claudecode/install.sh --clean   remove them
#
# A second run asks no registry. Exit status 77, with one line on stderr that says
# why, where they cannot be installed on this machine. They take 650 MB.
#
#   SLUICE_CLAUDE_DIR        the folder (default: .cache/claude in the repository)
#   SLUICE_CLAUDE_VERSIONS   which ones (default: all of testdata/programs)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${SLUICE_CLAUDE_DIR:-$here/../../.cache/claude}
programs=$here/testdata/programs

say() { echo "providers/claudecode/install.sh: $*" >&2; }
cannot() { say "cannot be installed here: $*"; exit 77; }

if [[ ${1:-} == --clean ]]; then
  rm -rf "$dir"
  exit 0
fi
[[ $# == 0 ]] || { say "usage: install.sh [--clean]"; exit 2; }

# program FOLDER: the one native program that npm chose for this machine.
program() {
  find "$1/node_modules/@anthropic-ai" -mindepth 2 -maxdepth 2 -type f \
    -path '*/claude-code-*/*' \( -name claude -o -name claude.exe \) 2>/dev/null | head -n1
}

# install VERSION: into a folder of its own, which is there whole or not at all.
install() {
  local to=$dir/$1 new=$dir/.new-$1.$$
  command -v npm >/dev/null || cannot "npm is missing (on Debian: apt-get install nodejs npm)"
  rm -rf "$new"
  mkdir -p "$new"
  cp "$programs/$1/package.json" "$programs/$1/package-lock.json" "$new"
  if ! (cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >"$dir/install.log" 2>&1; then
    if grep -q EINTEGRITY "$dir/install.log"; then
      say "a package does not have the pinned hash; see $dir/install.log"
      exit 1
    fi
    cannot "npm ci: $(grep -m1 -v '^ *$' "$dir/install.log" | sed -E 's#https?://[^ ]+#(a registry)#g' || true) (see $dir/install.log)"
  fi
  [[ -n $(program "$new") ]] || cannot "the package has no program for this machine ($(uname -sm))"
  rm -rf "$to"
  mv "$new" "$to"
}

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
for version in ${SLUICE_CLAUDE_VERSIONS:-$(ls "$programs")}; do
  cmp -s "$programs/$version/package-lock.json" "$dir/$version/package-lock.json" || install "$version"
  echo "$version=$(program "$dir/$version")"
done
