//go:build !(linux && amd64)

package cpu

// tilesAllowed: other systems are not asked.
func tilesAllowed() bool { return false }
