#!/bin/sh
# Builds vapp without cgo for every system that only plans: such a binary vets,
# plans and diffs, and refuses to serve on backends that need C.
set -eu
cd "$(dirname "$0")/.."

for os in linux darwin windows; do
	for arch in amd64 arm64; do
		echo "CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build ./cmd/vapp"
		CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -o /dev/null ./cmd/vapp
	done
done
