package kvevents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// socket is a set of connections, accepted or made.
type socket struct {
	listener net.Listener // nil: it connects
	ctx      context.Context
	stop     context.CancelFunc
	tasks    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newSocket() *socket {
	s := &socket{conns: map[net.Conn]struct{}{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// openPub opens the PUB socket.
func (p *Publisher) openPub() (*socket, error) {
	at, err := ParseEndpoint(p.cfg.Endpoint)
	if err != nil {
		return nil, &EndpointError{"endpoint", p.cfg.Endpoint, err}
	}
	s := newSocket()
	if !at.Listen && strings.HasSuffix(at.Address, ":0") {
		return nil, &EndpointError{"endpoint", p.cfg.Endpoint, errors.New("port 0 is no port to connect to; tcp://*:PORT listens")}
	}
	if !at.Listen {
		s.tasks.Go(func() { p.connect(s, at) })
		return s, nil
	}
	if err := s.listen(at); err != nil {
		return nil, &EndpointError{"endpoint", p.cfg.Endpoint, err}
	}
	s.tasks.Go(func() { s.accept(p, p.subscribe) })
	return s, nil
}

// openReplay opens the ROUTER socket.
func (p *Publisher) openReplay() (*socket, error) {
	at, err := ParseEndpoint(p.cfg.ReplayEndpoint)
	if err != nil {
		return nil, &EndpointError{"replayEndpoint", p.cfg.ReplayEndpoint, err}
	}
	s := newSocket()
	if err := s.listen(at); err != nil {
		return nil, &EndpointError{"replayEndpoint", p.cfg.ReplayEndpoint, err}
	}
	s.tasks.Go(func() { s.accept(p, p.serveReplay) })
	return s, nil
}

// listen opens the listener. Of a path it removes the socket that a process left that has ended.
func (s *socket) listen(at Endpoint) error {
	if at.Network == "unix" {
		if c, err := net.Dial(at.Network, at.Address); err == nil {
			c.Close()
			return fmt.Errorf("cannot listen: another process listens on it; give each server its own path")
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(at.Address)
		}
	}
	l, err := net.Listen(at.Network, at.Address)
	var named *net.DNSError
	switch {
	case err == nil:
		s.listener = l
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		return errors.New("cannot listen: the port is in use; choose another one, or stop the process that has it")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return errors.New("cannot listen: the address is not one of this host; * is all of its addresses")
	case errors.As(err, &named):
		return fmt.Errorf("cannot listen: the host is unknown; * is all addresses of this host: %w", err)
	}
	return fmt.Errorf("cannot listen: %w", err)
}

func (s *socket) addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// accept serves each peer in a goroutine of its own until the socket closes.
func (s *socket) accept(p *Publisher, serve func(net.Conn) error) {
	for {
		c, err := s.listener.Accept()
		if s.ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return
		}
		if err != nil { // such as too many open files
			p.cfg.Log.Warn("KV events: accept a connection", "error", err.Error())
			s.sleep(100 * time.Millisecond)
			continue
		}
		if !s.add(c) {
			p.counts.refused.Add(1)
			c.Close()
			continue
		}
		s.tasks.Go(func() {
			defer s.remove(c)
			if err := serve(c); protocolError(err) {
				p.counts.refused.Add(1)
				p.cfg.Log.Debug("KV events: a peer was refused", "peer", c.RemoteAddr().String(), "error", err.Error())
			}
		})
	}
}

// add keeps a connection; false: there are too many.
func (s *socket) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= maxPeers || s.ctx.Err() != nil {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *socket) remove(c net.Conn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// The times between two attempts to connect: the second one doubles up to the last one.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// connect keeps a connection to a subscriber that listens. It logs the first failure of a row.
func (p *Publisher) connect(s *socket, at Endpoint) {
	retry, logged := firstRetry, false
	for s.ctx.Err() == nil {
		d := net.Dialer{Timeout: handshakeTime}
		c, err := d.DialContext(s.ctx, at.Network, at.Address)
		var since time.Time
		if err == nil && s.add(c) {
			since = time.Now()
			err = p.subscribe(c)
			s.remove(c)
		} else if err == nil {
			c.Close()
		}
		if s.ctx.Err() != nil {
			return
		}
		if !since.IsZero() && time.Since(since) > lastRetry {
			retry, logged = firstRetry, false
		}
		p.counts.connectFailures.Add(1)
		if !logged {
			p.cfg.Log.Warn("KV events: no subscriber there; the server goes on and tries again", "endpoint", p.cfg.Endpoint, "error", reason(err))
			logged = true
		}
		s.sleep(retry)
		retry = min(2*retry, lastRetry)
	}
}

func reason(err error) string {
	if err == nil {
		return "the connection was closed"
	}
	return err.Error()
}

// sleep waits, or returns when the socket closes.
func (s *socket) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// close closes all connections and waits for their goroutines.
func (s *socket) close() {
	s.stop()
	if s.listener != nil {
		s.listener.Close()
	}
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
}
