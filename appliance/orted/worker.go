package orted

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// program is all that a worker runs.
const program = "orted"

// Worker is a host of a rank other than 0, connected to rank 0's.
type Worker struct {
	conn net.Conn
	in   *json.Decoder
}

// Join connects to rank 0's host and proves the key; it tries again for that time, since hosts start in any order.
func Join(ctx context.Context, leader string, key []byte, rank int, wait time.Duration) (*Worker, error) {
	if len(key) == 0 {
		return nil, &Error{fmt.Sprintf("rank %d", rank), "ranks of several hosts authenticate each other; set VAPP_RANKS_KEY or parallel.key"}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		w, err := join(ctx, leader, key, rank)
		if err == nil {
			return w, nil
		}
		select {
		case <-ctx.Done():
			return nil, &Error{"rank 0 at " + leader, fmt.Sprintf("no connection within %v (parallel.wait): %v", wait, err)}
		case <-tick.C:
		}
	}
}

// dialTime is how long one attempt to connect may take.
const dialTime = 3 * time.Second

func join(ctx context.Context, leader string, key []byte, rank int) (*Worker, error) {
	// A name may have its address of before for a while, at which nothing answers.
	c, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", leader)
	if err != nil {
		return nil, err
	}
	s, err := secure(ctx, c, key, false)
	if err == nil {
		err = s.SetDeadline(time.Time{})
	}
	if err == nil {
		err = json.NewEncoder(s).Encode(message{Rank: rank})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Worker{conn: s, in: json.NewDecoder(io.LimitReader(s, maxMessages))}, nil
}

// Command waits for mpirun on rank 0's host and returns the arguments of the orted that it wants here.
func (w *Worker) Command() ([]string, error) {
	var m message
	if err := w.in.Decode(&m); err != nil {
		return nil, &Error{"rank 0", "it has ended before the ranks started: " + err.Error()}
	}
	if m.Refused != "" {
		return nil, &Error{"rank 0 refuses this rank", m.Refused}
	}
	return arguments(m.Command)
}

// Lost returns when the connection has ended, which ends the group.
func (w *Worker) Lost() error {
	var m message
	for {
		if err := w.in.Decode(&m); err != nil {
			return &Error{"rank 0", "its host is gone: " + err.Error()}
		}
	}
}

// Drain asks rank 0's host for the end of the server.
func (w *Worker) Drain() error { return json.NewEncoder(w.conn).Encode(message{Drain: true}) }

// Close reports orted's exit code and ends the connection.
func (w *Worker) Close(code int) {
	_ = json.NewEncoder(w.conn).Encode(message{Ended: &code}) // rank 0's host may be gone
	w.conn.Close()
}

// arguments returns the arguments of orted from the words of a launch agent's command line. mpirun writes them for a shell that
// joins and splits them; here there is none: quotes are taken off, and another program than orted is refused.
func arguments(words []string) ([]string, error) {
	var out []string
	for _, w := range words {
		w = strings.TrimSpace(w)
		if n := len(w); n > 1 && w[0] == '"' && w[n-1] == '"' {
			w = w[1 : n-1]
		}
		if strings.ContainsAny(w, "\"\x00\n") {
			return nil, &Error{"mpirun's launch agent", fmt.Sprintf("%.40q has quotes or line ends within", w)}
		}
		out = append(out, w)
	}
	if len(out) == 0 || out[0] != program {
		first := ""
		if len(out) > 0 {
			first = out[0]
		}
		return nil, &Error{"mpirun's launch agent", fmt.Sprintf("a host of a rank runs %s alone, and not %.40q", program, first)}
	}
	return out[1:], nil
}
