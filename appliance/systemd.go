package appliance

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// firstSocket is the descriptor of the first socket that systemd passes.
const firstSocket = 3

// SocketError is a socket of systemd (LISTEN_FDS) that cannot be served.
type SocketError struct {
	Reason string // with the remedy
}

func (e *SocketError) Error() string { return "socket activation: " + e.Reason }

// systemd is the service manager as this process sees it: getenv reads the environment
// and pid is the process. Without the variables of systemd its methods do nothing.
type systemd struct {
	getenv func(string) string
	pid    int
}

func newSystemd() systemd { return systemd{os.Getenv, os.Getpid()} }

// noManager is for a server that is not the unit's: it takes no socket and reports nothing.
func noManager() systemd { return systemd{func(string) string { return "" }, 0} }

// listener returns the socket that systemd passed in place of serve.host and serve.port,
// nil if it passed none. descriptor is that of the first one.
func (s systemd) listener(descriptor uintptr) (net.Listener, error) {
	count, pid := s.getenv("LISTEN_FDS"), s.getenv("LISTEN_PID")
	if count == "" || pid != strconv.Itoa(s.pid) {
		return nil, nil // none, or for the process that started this one
	}
	switch n, err := strconv.Atoi(count); {
	case err != nil || n < 0:
		return nil, &SocketError{fmt.Sprintf("LISTEN_FDS is %q, which is no number of sockets; unset it, or start vapp by a socket unit", count)}
	case n == 0:
		return nil, nil
	case n > 1:
		return nil, &SocketError{fmt.Sprintf("systemd passed %d sockets and vapp serves one; keep one ListenStream= in the socket unit", n)}
	}
	f := os.NewFile(descriptor, "LISTEN_FDS")
	if f == nil {
		return nil, &SocketError{fmt.Sprintf("descriptor %d is not open; start vapp by a socket unit", descriptor)}
	}
	defer f.Close() // the listener has a copy
	l, err := net.FileListener(f)
	if err != nil {
		return nil, &SocketError{fmt.Sprintf("descriptor %d is no listening socket (%v); write ListenStream=HOST:PORT in the socket unit", descriptor, reasonOf(err))}
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return nil, &SocketError{fmt.Sprintf("the socket %s is not TCP; write ListenStream=HOST:PORT in the socket unit", l.Addr())}
	}
	if !accepts(tcp) {
		l.Close()
		return nil, &SocketError{"the socket is a connection; write Accept=no in the socket unit"}
	}
	return l, nil
}

// notify sends a state, lines of KEY=VALUE, to the service manager of a unit with
// Type=notify.
func (s systemd) notify(lines ...string) error {
	path := s.getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}) // "@" begins an abstract name
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil { // a manager that does not read must not delay the server
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}

// listen opens the socket: systemd's, else that of serve.host and serve.port.
func (a *Appliance) listen() error {
	if m := a.cfg.member; m != nil {
		a.socket.socket, a.socket.fixed = m.fleet.listener, "several servers have this listener, whose address needs a restart"
		return nil
	}
	p := a.prepared().Profile
	at := net.JoinHostPort(p.Serve.Host, fmt.Sprint(p.Serve.Port))
	passed, err := a.manager.listener(firstSocket)
	if err != nil {
		return err
	}
	if passed != nil {
		a.socket.socket, a.socket.fixed = passed, "systemd passed the socket, which stays; change ListenStream of the socket unit"
		if _, port, _ := net.SplitHostPort(passed.Addr().String()); port != fmt.Sprint(p.Serve.Port) {
			a.log.Warn("the socket unit's port is served, not serve.port", "address", passed.Addr().String(), "serve.port", p.Serve.Port)
		} else {
			a.log.Info("systemd passed the socket", "address", passed.Addr().String(), "profile's", at)
		}
		return nil
	}
	if a.cfg.PrivateKey != "" {
		a.socket.fixed = "the server is for one client, which knows its address"
	}
	if a.socket.socket, err = listen(p); err != nil {
		a.socket.socket = nil
	}
	return err
}

// report sends a state to the service manager. A failure is logged: the server can do
// its work without.
func (a *Appliance) report(lines ...string) {
	if err := a.manager.notify(lines...); err != nil {
		a.log.Warn("the service manager was not notified", "error", err)
	}
}
