#!/bin/sh
# Sets up what `make clients` drives the server with: the Python clients in
# .venv-clients and the Node client in tests/clients/node/node_modules, as
# requirements.txt and package-lock.json pin them. What is there is left alone, and
# then nothing is fetched.
set -eu
cd "$(dirname "$0")/.."

fail() {
	echo "clients: $1" >&2
	exit 1
}

stamp=.venv-clients/ready
if ! cmp -s tests/clients/python/requirements.txt "$stamp"; then
	echo "clients: fetching the Python clients" >&2
	rm -rf .venv-clients
	python3 -m venv .venv-clients || fail "python3 makes no virtual environment (Debian, Ubuntu: apt-get install python3-venv)"
	.venv-clients/bin/pip install --quiet --disable-pip-version-check -r tests/clients/python/requirements.txt ||
		fail "pip could not install them; is there a network?"
	cp tests/clients/python/requirements.txt "$stamp"
fi

if ! command -v npm >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "clients: installing nodejs and npm" >&2
	apt-get update -qq >/dev/null 2>&1 || true
	apt-get install -qq -y --no-install-recommends nodejs npm >/dev/null || true
fi
command -v npm >/dev/null || fail "there is no npm on the path (Debian, Ubuntu: apt-get install nodejs npm)"
stamp=tests/clients/node/node_modules/ready
if ! cmp -s tests/clients/node/package-lock.json "$stamp"; then
	echo "clients: fetching the Node client" >&2
	(cd tests/clients/node && npm ci --silent --ignore-scripts --no-audit --no-fund) || fail "npm could not install it; is there a network?"
	cp tests/clients/node/package-lock.json "$stamp"
fi
