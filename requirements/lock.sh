#!/usr/bin/env bash
# Makes the lock files anew from the ranges in pyproject.toml: bash requirements/lock.sh [python ...]
# With several Pythons (python3.11 python3.12 python3.13) it fails where they would need different versions: then write
# the difference as environment markers by hand.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
pythons=("$@")
[ ${#pythons[@]} -gt 0 ] || pythons=(python3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wanted() {  # the requirements of pyproject.toml: "core" or the name of an extra
    "$1" - "$here/../pyproject.toml" "$2" <<'PY'
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
print("\n".join(project["dependencies"] if sys.argv[2] == "core" else project["optional-dependencies"][sys.argv[2]]))
PY
}

for python in "${pythons[@]}"; do
    place=$work/$(basename "$python")
    "$python" -m venv "$place"
    pip=("$place/bin/python" -m pip --disable-pip-version-check)
    { wanted "$place/bin/python" core; wanted "$place/bin/python" models; } >"$place/want.txt"
    "${pip[@]}" install -q -r "$place/want.txt"
    "${pip[@]}" freeze | sort >"$place/lock.txt"
    wanted "$place/bin/python" test >"$place/want.txt"
    "${pip[@]}" install -q -r "$place/want.txt"
    "${pip[@]}" freeze | sort >"$place/test.txt"
    { wanted "$place/bin/python" dev; echo hatchling; echo editables; } >"$place/want.txt"
    "${pip[@]}" install -q -r "$place/want.txt"
    "${pip[@]}" freeze | sort >"$place/dev.txt"
    # The generator of the site runs in a place of its own, so that none of its versions bind ours.
    "$python" -m venv "$place-docs"
    wanted "$place/bin/python" docs >"$place/want.txt"
    "$place-docs/bin/python" -m pip --disable-pip-version-check install -q -r "$place/want.txt"
    "$place-docs/bin/python" -m pip --disable-pip-version-check freeze | sort >"$place/docs.txt"
    first=$work/$(basename "${pythons[0]}")
    for name in lock test dev docs; do diff "$first/$name.txt" "$place/$name.txt"; done
done

note="Made by requirements/lock.sh."
{
    echo "# What surefoot[models] runs with: exact versions, the same on Python 3.11, 3.12 and 3.13. $note"
    cat "$first/lock.txt"
} >"$here/lock.txt"
{
    echo "# What the tests need besides. $note"
    echo "-r lock.txt"
    comm -13 "$first/lock.txt" "$first/test.txt"
} >"$here/lock-test.txt"
{
    echo "# What \`make check\` and the editable build need besides. $note"
    echo "-r lock-test.txt"
    comm -13 "$first/test.txt" "$first/dev.txt"
} >"$here/lock-dev.txt"
{
    echo "# What \`make docs-site\` runs with, in a virtual environment of its own. $note"
    cat "$first/docs.txt"
} >"$here/lock-docs.txt"
echo "locks made with ${pythons[*]}"
