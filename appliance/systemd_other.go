//go:build !linux

package appliance

import "net"

// accepts returns true: only Linux has systemd.
func accepts(*net.TCPListener) bool { return true }
