#!/bin/bash
# numa-check.sh boots a machine with two NUMA nodes of two CPUs under qemu and runs the placement
# tests of engine/backend/cpu there: each node's panels are in its memory (numa_maps, move_pages),
# its threads are on its CPUs, and the bits are those of one node.
# KERNEL=FILE is the kernel that is booted; without it the newest of /boot. LOG=FILE keeps the
# machine's console. ACCEL=kvm takes less time than emulation.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "numa-check: $*" >&2; exit 1; }

[ "$(uname -sm)" = "Linux x86_64" ] || fail "it needs Linux on x86-64, this is $(uname -sm)"
KERNEL=${KERNEL:-$(ls -v /boot/vmlinuz-* 2>/dev/null | tail -1)}
missing=
command -v qemu-system-x86_64 >/dev/null || missing+=" qemu-system-x86"
command -v busybox >/dev/null || missing+=" busybox-static"
command -v cpio >/dev/null || missing+=" cpio"
[ -r "$KERNEL" ] || missing+=" linux-image-cloud-amd64"
[ -z "$missing" ] || fail "missing:$missing (apt-get install them; KERNEL=FILE names another kernel than the newest of /boot)"
busybox=$(command -v busybox)
! ldd "$busybox" >/dev/null 2>&1 || fail "$busybox is linked dynamically: apt-get install busybox-static"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp}
go test -c -o "$root/bin/placement" ./engine/backend/cpu
cp "$busybox" "$root/bin/busybox"
# The libraries that the test is linked with, and their loader, at their own paths.
ldd "$root/bin/placement" | grep -o '/[^ ]*' | while read -r lib; do
	mkdir -p "$root$(dirname "$lib")"
	cp -L "$lib" "$root$lib"
done
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
export TMPDIR=/tmp
# What is bound stays where it is although the system may move pages; what is not, is compared
# where it may not.
echo 1 > /proc/sys/kernel/numa_balancing
/bin/placement -test.v -test.timeout 15m -test.run 'TestPlacement/bound|TestNodesSameBits|TestCrowded'
one=$?
echo 0 > /proc/sys/kernel/numa_balancing
/bin/placement -test.v -test.timeout 15m -test.run 'TestPlacement/refused'
echo "numa-check: the tests ended with status $((one + $?))"
/bin/busybox poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initramfs"

log=${LOG:-$work/console}
# Emulation has AVX2 from qemu 7.2 on, and runs where KVM is not allowed.
accel=${ACCEL:-tcg} cpu=max
timeout 1200 qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -nographic -no-reboot -nodefaults -serial "file:$log" \
	-m 2G -smp 4,sockets=2,cores=2 \
	-object memory-backend-ram,id=m0,size=1G -numa node,nodeid=0,cpus=0-1,memdev=m0 \
	-object memory-backend-ram,id=m1,size=1G -numa node,nodeid=1,cpus=2-3,memdev=m1 \
	-numa dist,src=0,dst=1,val=21 \
	-kernel "$KERNEL" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" </dev/null >"$work/qemu" 2>&1 ||
	fail "qemu ($accel) ended with an error or after 20 minutes: $(tail -5 "$work/qemu" "$log" 2>/dev/null)"

grep -aE '^ *(place_test.go|--- |PASS|FAIL|panic)' "$log" | tr -d '\r' || true
# Both must have run: they are skipped on a machine with one node.
for t in bound refused; do
	grep -aq -- "--- PASS: TestPlacement/$t" "$log" || fail "TestPlacement/$t did not pass; console: $(tail -20 "$log")"
done
grep -aq 'the tests ended with status 0' "$log" || fail "a test failed"
echo "numa-check: each node has its panels and threads ($accel, $(basename "$KERNEL"))"
