package isa

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From arch_prctl(2): the feature number of tile data, and the calls for permissions of a
// process.
const (
	archGetXCompPerm = 0x1022
	archReqXCompPerm = 0x1023
	xTileData        = 18
)

// requestTiles asks the system for the tile registers. The permission is for the process:
// running threads get it too.
func requestTiles() error {
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXCompPerm, xTileData, 0); errno != 0 {
		return errno
	}
	var granted uint64
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archGetXCompPerm, uintptr(unsafe.Pointer(&granted)), 0); errno != 0 {
		return errno
	}
	if granted&(1<<xTileData) == 0 {
		return errors.New("the system did not report the permission that it granted")
	}
	return nil
}
