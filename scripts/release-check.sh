#!/bin/sh
# Checks a release: two builds in two folders are equal byte for byte, the .deb installed in a clean
# root answers on a socket that systemd passes, and the image answers as a user without rights on a
# root that it cannot write. Needs root, dpkg, unshare, buildah and systemd-socket-activate.
#
#   scripts/release-check.sh [all|builds|deb|image] [PORT]   (all, 8180)
set -eu
cd "$(dirname "$0")/.."
root=$PWD
what=${1:-all} port=${2:-8180}
model=SmolLM2-135M-Instruct.Q4_1.gguf
release=$root/.cache/release
work=${TMPDIR:-/tmp}/release-check.$$ # buildah makes a name of the path: no capitals
mkdir -m 755 "$work"
server=
# A killed server takes its mounts with it: it has a mount namespace of its own.
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || :
	[ -z "$server" ] || wait "$server" 2>/dev/null || :
	server=
}
trap 'finish; rm -rf "$work"' EXIT

fail() {
	echo "release-check: $*" >&2
	[ ! -f "$work/log" ] || tail -n 20 "$work/log" >&2
	exit 1
}
for tool in dpkg unshare systemd-socket-activate curl setpriv; do
	command -v $tool >/dev/null || fail "$tool is not on the path"
done
[ "$(id -u)" = 0 ] || fail "run it as root: it installs into a root of its own and changes users"

# profile FILE HOST writes a profile of the default model.
profile() {
	cat >"$1" <<-EOF
		package profiles

		import "vapp.dev/schema"

		schema.#Profile & {
			name: "check"
			model: source: "/models/$model"
			maxModelLen: "1K"
			memory: kvCache: "128MiB"
			scheduler: maxNumSeqs: 4
			serve: {host: "$2", port: $port, servedModelName: ["smollm2"]}
			sampling: {temperature: 0}
		}
	EOF
}

# ask waits for the server and prints its answer.
ask() {
	curl -sS --max-time 60 --retry 30 --retry-connrefused --retry-delay 1 -o /dev/null "http://127.0.0.1:$port/livez" 2>/dev/null || fail "$1 does not listen"
	n=0
	until curl -sf --max-time 10 -o /dev/null "http://127.0.0.1:$port/readyz"; do
		n=$((n + 1))
		[ $n -lt 120 ] && kill -0 "$server" 2>/dev/null || fail "$1 is not ready"
		sleep 1
	done
	answer=$(curl -sS --max-time 120 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
		-d '{"model": "smollm2", "max_tokens": 16, "messages": [{"role": "user", "content": "What is the capital of France?"}]}')
	case $answer in
	*Paris*) echo "release-check: $1 answers: $(echo "$answer" | sed 's/.*"content":"\([^"]*\)".*/\1/')" ;;
	*) fail "$1 answers $answer" ;;
	esac
}

builds() {
	for n in one two; do
		git clone --quiet --no-hardlinks "$root" "$work/$n" # the commit, in a folder of another name
	done
	for n in one two; do
		GOCACHE=$work/cache-$n make -s -C "$work/$n" release OUT="$work/out-$n" >"$work/log" 2>&1 || fail "build $n failed"
	done
	diff "$work/out-one/SHA256SUMS" "$work/out-two/SHA256SUMS" || fail "two builds differ"
	echo "release-check: two builds are equal: $(wc -l <"$work/out-one/SHA256SUMS") files, SHA256SUMS $(sha256sum <"$work/out-one/SHA256SUMS" | cut -c1-16)"
	rm -rf "$work/one" "$work/two" "$work/cache-one" "$work/cache-two"
}

deb() {
	clean=$work/root
	mkdir -p "$clean/var/lib/dpkg/info" "$clean/var/lib/dpkg/updates" "$clean/models" "$clean/proc" "$clean/dev" "$clean/tmp"
	: >"$clean/var/lib/dpkg/status"
	# Nothing is in this root but the package: no C library, and no shell, so that its scripts run outside.
	dpkg --root="$clean" --force-script-chrootless --install "$release"/*.deb >"$work/log" 2>&1 || fail "dpkg does not install the package"
	[ -f "$clean/usr/lib/systemd/system/vapp.service" ] || fail "the package has no unit"
	mkdir "$work/units"
	cp "$clean"/usr/lib/systemd/system/vapp.* "$work/units/"
	sed -i "s#=/usr/bin/vapp#=$clean/usr/bin/vapp#" "$work/units/vapp.service"
	systemd-analyze verify --man=no "$work"/units/vapp.* >"$work/verify" 2>&1 || fail "systemd-analyze verify: $(cat "$work/verify")"
	[ ! -s "$work/verify" ] || fail "systemd-analyze verify: $(cat "$work/verify")"
	cp "models/$model" "$clean/models/"
	profile "$clean/etc/vapp/vapp.cue" 127.0.0.1
	mount_proc="mount -t proc proc $clean/proc && mount --rbind /dev $clean/dev && exec chroot --userspec=65534:65534 $clean /usr/bin/vapp up /etc/vapp/vapp.cue"
	# The socket is opened by systemd's tool; the first connection starts the server.
	unshare --mount systemd-socket-activate --listen="127.0.0.1:$port" --setenv=HOME=/tmp \
		sh -c "$mount_proc" >"$work/log" 2>&1 &
	server=$!
	ask "the .deb in a clean root, on systemd's socket, as user 65534"
	grep -q 'systemd passed the socket' "$work/log" || fail "the server did not take systemd's socket"
	finish
}

image() {
	command -v buildah >/dev/null || fail "buildah is not on the path"
	mkdir -p "$work/oci" "$work/image" "$work/etc"
	tar -C "$work/oci" -xf "$release"/*-oci.tar
	buildah="buildah --storage-driver vfs --root $work/storage --runroot $work/run"
	c=$($buildah from --quiet "oci:$work/oci" 2>"$work/log")
	profile "$work/etc/vapp.cue" 127.0.0.1
	at=$($buildah mount "$c")
	user=$($buildah inspect --format '{{.OCIv1.Config.User}}' "$c")
	[ "$user" = 65532:65532 ] || fail "the image runs as $user"
	# As a container engine does with --read-only: the image's root without write access, its user
	# (which loses the capabilities), models and profile mounted.
	mkdir -p "$work/models"
	cp "models/$model" "$work/models/"
	chmod -R a+rX "$work/models" "$work/etc"
	unshare --mount sh -c "
		mount --bind $at $at && mkdir -p $at/proc $at/dev $at/models &&
		mount -t proc proc $at/proc && mount --rbind /dev $at/dev && mount --bind $work/models $at/models && mount --bind $work/etc $at/etc/vapp &&
		mount -o remount,ro,bind $at && ! touch $at/x 2>/dev/null &&
		exec setpriv --no-new-privs chroot --userspec=65532:65532 $at /usr/bin/vapp up /etc/vapp/vapp.cue" >"$work/log" 2>&1 &
	server=$!
	ask "the image, as user 65532 on a read-only root"
	grep Uid "/proc/$server/status" | grep -q 65532 || fail "the server is not user 65532"
	finish
	$buildah rm "$c" >/dev/null
}

case $what in
all) builds && deb && image ;;
builds | deb | image) "$what" ;;
*) fail "$what: there are all, builds, deb and image" ;;
esac
