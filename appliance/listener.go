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

// replace serves a socket in place of the present one, which it closes.
func (l *endpoint) replace(socket net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.socket
	l.socket = socket
	if l.server != nil {
		l.start(socket)
	}
	_ = old.Close() // it takes no connection any more, whatever the error
}

// move opens the socket of next, if it is another one than that of old; else it returns nil. Where the port stays, the
// addresses can overlap: then the present socket is closed first, and opened again if that does not help.
func (l *endpoint) move(old, next *schema.Profile) (net.Listener, error) {
	a, b := old.Serve, next.Serve
	if a.Host == b.Host && a.Port == b.Port {
		return nil, nil
	}
	if l.fixed != "" {
		field := "serve.port"
		if a.Host != b.Host {
			field = "serve.host"
		}
		return nil, next.Reject(field, "%s", l.fixed)
	}
	socket, err := listen(next)
	if err == nil || a.Port != b.Port || !inUse(next) {
		return socket, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.socket
	l.socket = nil // its end is no failure
	_ = now.Close()
	socket, err = listen(next)
	if err == nil {
		l.socket = now
		return socket, nil
	}
	back, failed := net.Listen("tcp", now.Addr().String())
	if failed != nil {
		l.socket = now
		l.failed <- errors.Join(err, listenError(old, failed))
		return nil, err
	}
	l.socket = back
	l.start(back)
	return nil, err
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
