#!/bin/sh
# Builds a release into OUT (.cache/release): binaries, archives, .deb, .rpm, OCI image, SBOM, SHA256SUMS.
#
#   scripts/release.sh [OUT]   VERSION=… and CUDA=1 as for make
#
# After one run with a network it works offline. Times come from the commit (SOURCE_DATE_EPOCH), so
# that two builds of a commit are equal byte for byte: scripts/release-check.sh. What is not built
# here (CUDA without kernels, the image without buildah) is named in a line.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
out=${1:-.cache/release}
most=48000000 # bytes of a Linux binary for CPUs, stripped: traces (OpenTelemetry, gRPC) are about 4 MB of it
exposure=2.0  # the most that systemd-analyze security may say

fail() {
	echo "release: $*" >&2
	exit 1
}
[ "$(uname -sm)" = "Linux x86_64" ] || fail "releases are built on Linux x86-64"
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -z "$(ls -A "$out")" ] || [ -f "$out/SHA256SUMS" ] || fail "$out has other files; name an empty folder: make release OUT=DIR"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$out out=$work/out # OUT changes only when everything is built
mkdir "$out"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
version=${VERSION:-$(git describe --tags --always --dirty)}
# Packages are ordered by version, which begins with a digit.
case $version in
v[0-9]*) PACKAGE_VERSION=$(echo "${version#v}" | tr - .) ;;
*) PACKAGE_VERSION=0.0.$(git log -1 --format=%cd --date=format:%Y%m%d).$(echo "$version" | tr - .) ;;
esac
export PACKAGE_VERSION

# What computes no tokens is compiled without inlining: five per cent of the binary. Functions are not
# aligned, and C has no tables for unwinding, which Go does not do through C.
cold="cuelang.org cuelabs.dev google.golang.org/protobuf github.com/swaggest go.yaml.in gopkg.in github.com/prometheus
	github.com/pelletier github.com/spf13 golang.org/x/text golang.org/x/net github.com/emicklei github.com/protocolbuffers
	text/template html/template net math/big vendor
	github.com/reeflective github.com/rivo github.com/cockroachdb github.com/vbauerster github.com/mattn github.com/labstack
	github.com/fsnotify go.etcd.io go.opentelemetry.io google.golang.org/grpc google.golang.org/genproto github.com/grpc-ecosystem github.com/cenkalti github.com/go-logr
	vapp.dev/tools vapp.dev/cmd vapp.dev/schema vapp.dev/foreign
	vapp.dev/engine/speed vapp.dev/engine/backend/measure vapp.dev/engine/models vapp.dev/engine/backend/cuda vapp.dev/engine/backend/ref
	vapp.dev/engine/backend/devices vapp.dev/engine/checkpoint vapp.dev/appliance encoding crypto"
slim=$(for p in $cold; do printf -- '-gcflags=%s/...=-l ' "$p"; done)
flags="-trimpath -buildvcs=false"
small="-s -w -buildid= -funcalign=1"

# aged DIR gives all files the time of the commit.
aged() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }
# archive NAME BINARY packs a binary with licence and README.
archive() {
	mkdir -p "$work/tar/$1"
	cp LICENSE README.md "$work/tar/$1/"
	cp "$2" "$work/tar/$1/vapp$3"
	tar -C "$work/tar" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$1" | gzip -9n >"$out/$1.tar.gz"
}

# Linux on x86-64: everything is linked in, glibc too; names and users are looked up in Go.
# shellcheck disable=SC2086
CGO_CFLAGS="${CGO_CFLAGS:--g -O2} -fno-asynchronous-unwind-tables -DVAPP_NO_SOFT_TILES" CGO_ENABLED=1 go build $flags $slim -tags netgo,osusergo \
	-ldflags "$small -X main.version=$version -extldflags '-static -Wl,--gc-sections,-O1,--build-id=none'" -o "$work/vapp" ./cmd/vapp
needs=$(objdump -p "$work/vapp" | awk '$1 == "NEEDED" { print $2 }')
[ -z "$needs" ] || fail "the binary needs shared libraries: $needs"
! strings "$work/vapp" | grep -qF "$root" || fail "the binary has the path of this folder"
bytes=$(wc -c <"$work/vapp")
[ "$bytes" -lt $most ] || fail "the binary has $bytes bytes, the most is $most; scripts/size.sh says what is in it"
echo "release: linux-amd64 has $bytes bytes, no shared libraries and no floor of glibc"
archive "vapp-$version-linux-amd64" "$work/vapp" ""

# Linux on ARM, with a cross compiler: as above. It is tested under emulation (make test-arm64), and its
# speed is not measured.
planners="darwin/amd64 darwin/arm64 windows/amd64"
lacks=$(scripts/arm64.sh missing)
if [ -z "$lacks" ]; then
	# shellcheck disable=SC2086
	ARM64_CFLAGS="-g -O2 -fno-asynchronous-unwind-tables" scripts/arm64.sh go build $flags $slim -tags netgo,osusergo \
		-ldflags "$small -X main.version=$version -extldflags '-static -Wl,--gc-sections,-O1,--build-id=none'" -o "$work/vapp-arm64" ./cmd/vapp
	needs=$(objdump -p "$work/vapp-arm64" | awk '$1 == "NEEDED" { print $2 }')
	[ -z "$needs" ] || fail "the binary for ARM needs shared libraries: $needs"
	! strings "$work/vapp-arm64" | grep -qF "$root" || fail "the binary for ARM has the path of this folder"
	bytes=$(wc -c <"$work/vapp-arm64")
	[ "$bytes" -lt $most ] || fail "the binary for ARM has $bytes bytes, the most is $most; scripts/size.sh says what is in it"
	echo "release: linux-arm64 has $bytes bytes and no shared libraries"
	archive "vapp-$version-linux-arm64" "$work/vapp-arm64" ""
else
	echo "release: linux-arm64 vets and plans only: $lacks"
	planners="linux/arm64 $planners"
fi

# With CUDA: libcuda is opened when the server starts, so glibc is a shared library.
if [ "${CUDA:-}" = 1 ] || ls kernels/cuda/image/built/*.zip >/dev/null 2>&1; then
	scripts/kernels.sh embed
	# shellcheck disable=SC2086
	scripts/cuda-run.sh go build $flags $slim -tags cuda -ldflags "$small -X main.version=$version -extldflags=-Wl,--gc-sections,-O1,--build-id=none" -o "$work/vapp-cuda" ./cmd/vapp
	floor=$(objdump -T "$work/vapp-cuda" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
	echo "release: linux-amd64-cuda has $(wc -c <"$work/vapp-cuda") bytes and needs $floor: $(objdump -p "$work/vapp-cuda" | awk '$1 == "NEEDED" { printf "%s ", $2 }')"
	archive "vapp-$version-linux-amd64-cuda" "$work/vapp-cuda" ""
else
	echo "release: without linux-amd64-cuda, its kernels were not built here; make release CUDA=1 compiles them"
fi

# Planners: they vet and plan, and refuse to serve.
for pair in $planners; do
	os=${pair%/*} arch=${pair#*/} exe=
	[ "$os" != windows ] || exe=.exe
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build $flags -ldflags "-s -w -buildid= -X 'main.version=$version (planner only)'" -o "$work/planner" ./cmd/vapp
	archive "vapp-planner-$version-$os-$arch" "$work/planner" "$exe"
done

# SBOM
cargo metadata --format-version 1 --locked --offline --filter-platform x86_64-unknown-linux-gnu --manifest-path engine/tokenizer/native/Cargo.toml >"$work/crates.json"
(cd packaging/tools && CGO_ENABLED=0 go build -o "$work/sbom" ./sbom && CGO_ENABLED=0 go build -o "$work/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm)
"$work/sbom" -binary "$work/vapp" -version "$version" -epoch "$SOURCE_DATE_EPOCH" -crates "$work/crates.json" -scripts scripts/page-libs.sh >"$out/vapp-$version.spdx.json"

# The tree of the packages.
STAGE=$work/stage
export STAGE
doc=$STAGE/usr/share/doc/vapp
mkdir -p "$STAGE/usr/bin" "$STAGE/usr/lib/systemd/system" "$STAGE/etc/vapp" "$doc" "$STAGE/usr/share/man/man1" \
	"$STAGE/usr/share/bash-completion/completions" "$STAGE/usr/share/zsh/vendor-completions" "$STAGE/usr/share/fish/vendor_completions.d"
cp "$work/vapp" "$STAGE/usr/bin/vapp"
cp packaging/systemd/vapp.service packaging/systemd/vapp.socket "$STAGE/usr/lib/systemd/system/"
cp packaging/vapp.cue "$STAGE/etc/vapp/vapp.cue"
cp README.md LICENSE packaging/copyright packaging/prometheus/vapp.rules.yml "$doc/"
cp packaging/grafana/vapp.json "$doc/vapp.grafana.json"
cp "$out/vapp-$version.spdx.json" "$doc/vapp.spdx.json"
"$work/vapp" completion bash >"$STAGE/usr/share/bash-completion/completions/vapp"
"$work/vapp" completion zsh >"$STAGE/usr/share/zsh/vendor-completions/_vapp"
"$work/vapp" completion fish >"$STAGE/usr/share/fish/vendor_completions.d/vapp.fish"
if "$work/vapp" man --help >/dev/null 2>&1; then
	"$work/vapp" man "$STAGE/usr/share/man/man1"
	gzip -9n "$STAGE"/usr/share/man/man1/*
else
	echo "release: without man pages, this vapp has no command that writes them"
	rmdir "$STAGE/usr/share/man/man1" "$STAGE/usr/share/man"
fi
aged "$STAGE"
"$work/vapp" vet "$STAGE/etc/vapp/vapp.cue" >/dev/null
for kind in deb rpm; do
	"$work/nfpm" package --config packaging/nfpm.yaml --packager $kind --target "$out/vapp-$version-amd64.$kind" >"$work/log" 2>&1 || fail "nfpm: $(cat "$work/log")"
done

# The unit's exposure, where systemd is.
if command -v systemd-analyze >/dev/null; then
	got=$(systemd-analyze security --offline=yes packaging/systemd/vapp.service | sed -n 's/.*exposure level for vapp.service: \([0-9.]*\).*/\1/p')
	echo "release: systemd-analyze security: $got of 10"
	awk -v got="$got" -v most=$exposure 'BEGIN { exit !(got != "" && got <= most) }' || fail "the unit's exposure is $got, the most is $exposure"
else
	echo "release: systemd-analyze is not on the path: the unit was not checked"
fi

# The image: the binary, certificates, a user. It needs nothing else.
if command -v buildah >/dev/null; then
	image=$work/image
	mkdir -p "$image/etc/ssl/certs" "$image/etc/vapp" "$image/usr/bin" "$image/var/cache/vapp" "$image/usr/share/doc/vapp"
	cp "$work/vapp" "$image/usr/bin/vapp"
	cp packaging/vapp.cue "$image/etc/vapp/vapp.cue"
	sed -i 's/host: "127.0.0.1"/host: "0.0.0.0"/' "$image/etc/vapp/vapp.cue"
	cp LICENSE "$out/vapp-$version.spdx.json" "$image/usr/share/doc/vapp/"
	cp /etc/ssl/certs/ca-certificates.crt "$image/etc/ssl/certs/"
	echo 'vapp:x:65532:65532:vapp:/var/cache/vapp:/' >"$image/etc/passwd"
	echo 'vapp:x:65532:' >"$image/etc/group"
	chown -R 65532:65532 "$image/var/cache/vapp" 2>/dev/null || :
	aged "$image"
	buildah="buildah --storage-driver vfs --root $work/storage --runroot $work/run"
	c=$($buildah from scratch)
	$buildah copy --quiet "$c" "$image" / >/dev/null
	$buildah config --user 65532:65532 --workingdir /var/cache/vapp --env HOME=/var/cache/vapp --env HF_HOME=/var/cache/vapp \
		--volume /var/cache/vapp --port 8000/tcp --entrypoint '["/usr/bin/vapp"]' --cmd 'up /etc/vapp/vapp.cue' --os linux --arch amd64 \
		--created-by vapp --history-comment '' \
		--label org.opencontainers.image.title=vapp --label org.opencontainers.image.version="$version" \
		--label org.opencontainers.image.licenses=Apache-2.0 --label org.opencontainers.image.revision="$(git rev-parse HEAD)" "$c"
	$buildah commit --quiet --disable-compression=false --timestamp 0 "$c" "oci:$work/oci:$version" >/dev/null
	$buildah rm "$c" >/dev/null
	tar -C "$work/oci" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$out/vapp-$version-oci.tar" .
else
	echo "release: without the image, buildah is not on the path (Debian: apt-get install buildah)"
fi

(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
find "$to" -mindepth 1 -delete
cp -p "$out"/* "$to/"
echo "release: $to"
(cd "$to" && ls -l | awk 'NR > 1 { printf "%12d  %s\n", $5, $9 }')
