// Package orted starts Open MPI's daemon, orted, on other hosts over TCP: mpirun needs ssh for that, which pods do not have. The
// workers connect to rank 0's host, and both sides prove that they have the key. What mpirun would give to ssh then goes to the
// worker of that host, which runs orted with it and nothing else.
//
// It must not know profiles or the engine, and it does not start mpirun. Start reading at Gather, then at Join.
package orted

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// message is what the two sides send each other. A worker begins with its rank.
type message struct {
	Rank    int      `json:",omitempty"`
	Refused string   `json:",omitempty"` // why a worker cannot be of the group
	Command []string `json:",omitempty"` // to a worker: orted and its arguments
	Drain   bool     `json:",omitempty"` // to rank 0's host: the worker's host asks for the end of the server
	Ended   *int     `json:",omitempty"` // to rank 0's host: orted's exit code
}

// maxMessages is the most that one side reads of a connection, in bytes.
const maxMessages = 1 << 20

// Error is why ranks of several hosts cannot start.
type Error struct {
	Who, Why string
}

func (e *Error) Error() string { return e.Who + ": " + e.Why }

// Group has the workers of ranks 1 to n, on rank 0's host.
type Group struct {
	// Drained gets a value when a worker's host asks for the end of the server.
	Drained chan struct{}

	workers map[string]*worker // by the host's address
	hosts   []string           // by rank, from 1
}

// worker is one connection.
type worker struct {
	conn  net.Conn
	in    *json.Decoder
	ended chan error // gets one value
}

// Gather listens at addr, HOST:PORT, until the workers of all ranks but 0 have connected, at most for that time. Then it listens
// no more. An error names the ranks that are missing.
func Gather(ctx context.Context, addr string, key []byte, world int, wait time.Duration) (*Group, error) {
	if len(key) == 0 {
		return nil, &Error{"rank 0", "ranks of several hosts authenticate each other; set VAPP_RANKS_KEY or parallel.key"}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &Error{"rank 0", err.Error()}
	}
	defer ln.Close()
	g := &Group{Drained: make(chan struct{}, world), workers: map[string]*worker{}, hosts: make([]string, world-1)}
	type result struct {
		w    *worker
		rank int
	}
	met, stop := make(chan result), make(chan struct{})
	defer close(stop)
	var refused error
	var mu sync.Mutex
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				w, rank, err := greet(ctx, c, key)
				if err != nil {
					mu.Lock()
					refused = err
					mu.Unlock()
					c.Close()
					return
				}
				select {
				case met <- result{w, rank}:
				case <-stop:
					w.conn.Close()
				}
			}()
		}
	}()
	for left := world - 1; left > 0; {
		select {
		case r := <-met:
			if why := g.take(r.w, r.rank); why != "" {
				_ = json.NewEncoder(r.w.conn).Encode(message{Refused: why})
				r.w.conn.Close()
				mu.Lock()
				refused = &Error{fmt.Sprintf("rank %d", r.rank), why}
				mu.Unlock()
				continue
			}
			left--
		case <-ctx.Done():
			g.Close()
			mu.Lock()
			defer mu.Unlock()
			return nil, g.absent(wait, refused)
		}
	}
	for _, w := range g.workers {
		go g.read(w)
	}
	return g, nil
}

// greet authenticates a connection and reads the worker's rank.
func greet(ctx context.Context, c net.Conn, key []byte) (*worker, int, error) {
	s, err := secure(ctx, c, key, true)
	if err != nil {
		return nil, 0, &Error{"a connection of " + c.RemoteAddr().String(), err.Error()}
	}
	w := &worker{s, json.NewDecoder(io.LimitReader(s, maxMessages)), make(chan error, 1)}
	var hello message
	if err := w.in.Decode(&hello); err != nil {
		return nil, 0, &Error{"a connection of " + c.RemoteAddr().String(), err.Error()}
	}
	return w, hello.Rank, s.SetDeadline(time.Time{})
}

// take gives a worker its rank, or returns why it cannot have it.
func (g *Group) take(w *worker, rank int) (why string) {
	host, _, err := net.SplitHostPort(w.conn.RemoteAddr().String())
	switch {
	case err != nil:
		return err.Error()
	case rank < 1 || rank > len(g.hosts):
		return fmt.Sprintf("there is no such rank; there are %d", len(g.hosts)+1)
	case g.hosts[rank-1] != "":
		return "another process is this rank, on " + g.hosts[rank-1]
	case g.workers[host] != nil:
		return "another rank is on " + host + ", and a host has one; set cpu.ranks to run several on one host"
	}
	g.hosts[rank-1], g.workers[host] = host, w
	return ""
}

// absent returns the error of a group that is not complete.
func (g *Group) absent(wait time.Duration, refused error) error {
	var ranks string
	for i, h := range g.hosts {
		if h == "" {
			ranks += " " + strconv.Itoa(i+1)
		}
	}
	why := fmt.Sprintf("within %v (parallel.wait) no host has connected for rank%s", wait, ranks)
	if refused != nil {
		why += "; the last that was refused: " + refused.Error()
	}
	return &Error{"rank 0", why}
}

// read reads what a worker sends until its connection ends.
func (g *Group) read(w *worker) {
	for {
		var m message
		switch err := w.in.Decode(&m); {
		case err != nil:
			w.ended <- fmt.Errorf("the connection to %s is lost: %w", w.conn.RemoteAddr(), err)
			return
		case m.Ended != nil && *m.Ended != 0:
			w.ended <- fmt.Errorf("orted on %s has ended with code %d", w.conn.RemoteAddr(), *m.Ended)
			return
		case m.Ended != nil:
			w.ended <- nil
			return
		case m.Drain:
			select {
			case g.Drained <- struct{}{}:
			default: // one is enough
			}
		}
	}
}

// Hosts returns the addresses of the hosts of ranks 1 and up.
func (g *Group) Hosts() []string { return g.hosts }

// Run runs orted on a host with the words that mpirun has given to its launch agent, and returns when it has ended.
func (g *Group) Run(host string, words []string) error {
	w := g.workers[host]
	if w == nil {
		return &Error{host, "no rank is there"}
	}
	if _, err := arguments(words); err != nil {
		return err
	}
	if err := json.NewEncoder(w.conn).Encode(message{Command: words}); err != nil {
		return err
	}
	return <-w.ended
}

// Close ends the connections: the workers kill what they have started.
func (g *Group) Close() {
	for _, w := range g.workers {
		w.conn.Close()
	}
}
