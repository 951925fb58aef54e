#!/bin/sh
# page-libs.sh [check]: fetches the libraries of the page (appliance/page/libs) from their npm
# packages again, compares them with the digests below and stores them in gzip's format; with `check`
# it writes nothing.
# Each line: package, version, licence, file of the package, file here, SHA-256. A new version: change
# the line here, the list in appliance/page/page.go and the row in docs/dependencies.md.
set -eu
cd "$(dirname "$0")/.."
to=$PWD/appliance/page/libs

digest() {
	if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}

command -v npm >/dev/null || { echo "page-libs: no npm on the path; install Node with npm" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
while read -r package version _ path file want; do
	mkdir "$tmp/$file"
	(cd "$tmp/$file" && npm pack --silent "$package@$version" >/dev/null && tar -xzf ./*.tgz) ||
		{ echo "page-libs: $package@$version could not be fetched; is there a network?" >&2; exit 1; }
	got=$(digest "$tmp/$file/package/$path")
	[ "$got" = "$want" ] || { echo "page-libs: $path of $package@$version has SHA-256 $got, want $want" >&2; exit 1; }
	licence=$to/${file%.min.js}.LICENSE
	if [ "${1:-}" = check ]; then
		gzip -dc "$to/$file.gz" | cmp "$tmp/$file/package/$path" -
		cmp "$tmp/$file/package/LICENSE" "$licence"
	else
		gzip -9nc "$tmp/$file/package/$path" >"$to/$file.gz"
		cp "$tmp/$file/package/LICENSE" "$licence"
		chmod 644 "$to/$file.gz" "$licence"
	fi
	echo "$file: $package $version, as published"
done <<LIST
markdown-it 14.3.3 MIT dist/markdown-it.min.js markdown-it.min.js 494ba53db1aac9f676317dda7062bd9545b5f0bbe3f12b0ab1ab4f813825cfb0
@highlightjs/cdn-assets 11.12.0 BSD-3-Clause highlight.min.js highlight.min.js 8ab71eb09c51f501e5e25157d9cff100e46cc29bcbfc744d0b746d451fca7f53
LIST
