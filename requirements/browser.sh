#!/usr/bin/env bash
# Prints the path of a headless Chromium for tests/page, and installs Debian's where there is none and it may.
# SUREFOOT_CHROMIUM names another one.
set -euo pipefail

found() {
    local name
    for name in "${SUREFOOT_CHROMIUM:-}" chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then
            command -v "$name"
            return 0
        fi
    done
    # What `playwright install chromium` leaves.
    for name in "$HOME"/.cache/ms-playwright/chromium*/chrome-*/{headless_shell,chrome-headless-shell,chrome}; do
        if [ -x "$name" ]; then
            echo "$name"
            return 0
        fi
    done
    return 1
}

if found; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing a headless Chromium with the system's packages (about a minute)" >&2
    # Two test processes may come here at once.
    exec 9>"${TMPDIR:-/tmp}/surefoot-browser.lock"
    command -v flock >/dev/null 2>&1 && flock 9
    if found; then exit 0; fi
    export DEBIAN_FRONTEND=noninteractive
    {
        apt-get update -qq
        # The second font is for the Chinese page: without one its texts are boxes.
        apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core fonts-noto-cjk ||
            apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
    } >&2
    if found; then exit 0; fi
fi
cat >&2 <<'TEXT'
The page's tests need a Chromium, and none is here. Install one, then run the tests again:
    Debian:  apt-get install chromium-headless-shell fonts-noto-cjk
    Ubuntu, macOS:  .venv/bin/playwright install chromium
Or name one that you have: SUREFOOT_CHROMIUM=/path/to/chrome make test
TEXT
exit 1
