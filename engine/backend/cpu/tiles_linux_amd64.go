package cpu

import "golang.org/x/sys/unix"

// tilesAllowed asks the system for the tile registers, which a process may use
// only after it has asked; what it answers holds for all threads.
func tilesAllowed() bool {
	const (
		archReqXCompPerm = 0x1023
		xTileData        = 18
	)
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXCompPerm, xTileData, 0)
	return errno == 0
}
