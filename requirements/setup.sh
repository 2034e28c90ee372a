#!/usr/bin/env bash
# Makes .venv with the locked packages and this project, editable. `make setup` calls it when a lock file has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

good() { "$@" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# A .venv that works is kept: an install over it only changes what the locks changed.
if ! { good .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    python=
    # A name that is found may still not run (a version manager's placeholder), so each is tried.
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if good "$name"; then
            python=$name
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "surefoot needs Python 3.11 or newer. Install one, then name it: make setup PYTHON=/path/to/python3.11" >&2
        exit 1
    fi
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "$python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv; then make setup" >&2
        exit 1
    fi
    "$python" -m venv --clear .venv
fi

pip=(.venv/bin/python -m pip --disable-pip-version-check install -qq)
echo "installing the locked packages into .venv (about a minute)"
"${pip[@]}" -r requirements/lock-dev.txt
# The build tools are locked too, so nothing is fetched behind the locks' back.
"${pip[@]}" --no-deps --no-build-isolation -e .
echo "ready: $(.venv/bin/python --version) in .venv"
