package appliance

import (
	"net"
	"syscall"
)

// accepts reports whether the socket takes connections; a connection itself does not.
func accepts(l *net.TCPListener) bool {
	c, err := l.SyscallConn()
	if err != nil {
		return false
	}
	is := 0
	if err := c.Control(func(fd uintptr) { is, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN) }); err != nil {
		return false
	}
	return is != 0
}
