#!/bin/sh
# Builds vapp without cgo for systems that only plan: such a binary vets, plans and
# diffs, and refuses to serve on backends that need C. By default one for each system
# that is not Linux; `scripts/cross.sh all` is every pair.
set -eu
cd "$(dirname "$0")/.."

pairs="darwin/arm64 windows/amd64"
[ "${1:-}" != all ] || pairs="$pairs linux/amd64 linux/arm64 darwin/amd64 windows/arm64"
for pair in $pairs; do
	echo "CGO_ENABLED=0 GOOS=${pair%/*} GOARCH=${pair#*/} go build ./cmd/vapp"
	CGO_ENABLED=0 GOOS=${pair%/*} GOARCH=${pair#*/} go build -trimpath -o /dev/null ./cmd/vapp
done
