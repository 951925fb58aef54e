package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a server process.
type server struct {
	cmd   *exec.Cmd
	log   bytes.Buffer // complete once the process ended
	ended chan struct{}
}

func start(c command) (*server, error) {
	s := &server{cmd: exec.Command(c.path, c.args...), ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), c.env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // the error is in the log
	}()
	return s, nil
}

// ready waits until the server answers, at most three minutes.
func (s *server) ready(ctx context.Context, at address) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.url(at.ready), nil)
		if err != nil {
			return err
		}
		if r, err := http.DefaultClient.Do(req); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("it was not ready in time: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop ends the server, with SIGKILL if SIGTERM does not, and returns its output.
func (s *server) stop() []byte {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(15 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	return s.log.Bytes()
}

// time returns the CPU time of the server so far.
func (s *server) time() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	return processTime(string(data))
}

// processTime returns the user and system time in /proc/PID/stat: the 12th and 13th field
// after the name, which may contain anything but ends with the last parenthesis.
func processTime(stat string) time.Duration {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// peak returns the maximum resident memory in bytes.
func (s *server) peak() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	return highWater(string(data))
}

// highWater returns VmHWM of /proc/PID/status in bytes.
func highWater(status string) float64 {
	_, rest, _ := strings.Cut(status, "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 64)
	if err != nil {
		return 0
	}
	return kib * 1024
}
