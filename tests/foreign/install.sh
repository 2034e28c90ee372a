#!/usr/bin/env bash
# Installs what the foreign tests drive into build/foreign (git ignores it), once for each list of packages:
#   bash tests/foreign/install.sh    prints the path of a node that can run it, as its last line
# emulate needs Node 24. Where that is not installed, it comes as a package too.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
place=$root/build/foreign
packages=(emulate@0.12.2)
node=$(command -v node || true)
major=0
[ -z "$node" ] || major=$("$node" -p 'process.versions.node.split(".")[0]')
if [ "$major" -lt 24 ]; then
    case "$(uname -s)-$(uname -m)" in
        Linux-x86_64) kind=linux-x64 ;;
        Linux-aarch64) kind=linux-arm64 ;;
        Darwin-arm64) kind=darwin-arm64 ;;
        Darwin-x86_64) kind=darwin-x64 ;;
        *) echo "install Node 24 or newer: there is no package of it for $(uname -s) $(uname -m)" >&2; exit 1 ;;
    esac
    packages+=("node-$kind@24.22.3")
    node=$place/node_modules/node-$kind/bin/node
fi
done=$place/$(printf '%s-' "${packages[@]}" | tr -c 'A-Za-z0-9.\n-' '_').installed
if [ ! -f "$done" ]; then
    command -v npm >/dev/null || { echo "npm is missing: the foreign tests install their programs with it" >&2; exit 1; }
    mkdir -p "$place"
    [ -f "$place/package.json" ] || echo '{"name": "foreign", "private": true}' >"$place/package.json"
    npm install --prefix "$place" --ignore-scripts --no-audit --no-fund --loglevel=error "${packages[@]}" >&2
    touch "$done"
fi
echo "$node"
