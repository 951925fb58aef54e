package appliance

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"

	"vapp.dev/schema"
)

// endpoint is the socket on which a server answers. A change of serve.host or serve.port replaces it while requests
// run; connections of the old socket stay open.
type endpoint struct {
	mu     sync.Mutex
	socket net.Listener
	fixed  string // why the socket cannot be replaced; "": it can
	server *http.Server
	tls    bool
	failed chan error // gets the error of a socket that was not replaced
}

// serve serves the socket, and those that replace it, until the server is closed.
func (l *endpoint) serve(s *http.Server) <-chan error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server, l.tls, l.failed = s, s.TLSConfig != nil, make(chan error, 1) // Serve sets TLSConfig too
	l.start(l.socket)
	return l.failed
}

func (l *endpoint) start(socket net.Listener) {
	serve := l.server.Serve
	if l.tls {
		serve = func(s net.Listener) error { return l.server.ServeTLS(s, "", "") }
	}
	go func() {
		err := serve(socket)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.socket == socket {
			l.failed <- err
		}
	}()
}

// addr returns the address.
func (l *endpoint) addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket.Addr()
}

// move serves the address of next, if it is another one than that of old, and closes the present socket. Where the
// port stays, the addresses can overlap: then the present socket is closed first, and opened again if that does not
// help. moved is false if the address is the same.
func (l *endpoint) move(old, next *schema.Profile) (moved bool, err error) {
	a, b := old.Serve, next.Serve
	if a.Host == b.Host && a.Port == b.Port {
		return false, nil
	}
	if l.fixed != "" {
		field := "serve.port"
		if a.Host != b.Host {
			field = "serve.host"
		}
		return false, next.Reject(field, "%s", l.fixed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.socket
	socket, err := listen(next)
	if err != nil && a.Port == b.Port && inUse(next) {
		_ = was.Close()
		if socket, err = listen(next); err != nil {
			back, failed := net.Listen("tcp", was.Addr().String())
			if failed != nil {
				l.failed <- errors.Join(err, listenError(old, failed))
				return false, err
			}
			l.serveNew(back)
			return false, err
		}
	}
	if err != nil {
		return false, err
	}
	l.serveNew(socket)
	_ = was.Close() // it takes no connection any more, whatever the error
	return true, nil
}

// serveNew serves a socket in place of the present one, whose end is then no failure.
func (l *endpoint) serveNew(socket net.Listener) {
	l.socket = socket
	if l.server != nil {
		l.start(socket)
	}
}

// inUse reports whether the address of a profile is in use.
func inUse(p *schema.Profile) bool {
	s, err := net.Listen("tcp", net.JoinHostPort(p.Serve.Host, strconv.Itoa(p.Serve.Port)))
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	_ = s.Close()
	return false
}
