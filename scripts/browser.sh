#!/bin/sh
# browser.sh COMMAND...: runs it with CHROMIUM set to a browser that is here or, as
# root on Debian, is installed now. Without one it says so and runs nothing.
set -eu
find_browser() {
	for name in chromium chromium-browser google-chrome; do
		if command -v "$name"; then return; fi
	done
}
found=${CHROMIUM:-$(find_browser)}
if [ -z "$found" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "browser: installing chromium" >&2
	apt-get update -qq >/dev/null 2>&1 || true
	apt-get install -qq -y --no-install-recommends chromium >/dev/null || true
	found=$(find_browser)
fi
if [ -z "$found" ]; then
	echo "browser: NOT RUN: there is no Chromium here; install the package chromium, or set CHROMIUM to one" >&2
	exit 0
fi
CHROMIUM=$found exec "$@"
