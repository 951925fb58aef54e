package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a program of the control plane.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended; err is set before
	err       error
}

// start runs a program with its output in the file log. It dies with this process.
func start(bin, log string, env []string, args ...string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &process{name: filepath.Base(bin), log: log, cmd: exec.Command(bin, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = f, f, env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// ready waits until url answers with a status that accept takes. The client does not check the certificate: programs sign
// their own, and nothing secret is sent.
func (p *process) ready(ctx context.Context, url string, accept func(status int) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("no answer yet")
	for {
		r, err := client.Get(url)
		if err == nil {
			r.Body.Close()
			if accept(r.StatusCode) {
				return nil
			}
			err = errors.New(r.Status)
		}
		last = err
		select {
		case <-p.done:
			return fmt.Errorf("%s has ended before it was ready (%v); %s ends with:\n%s", p.name, p.err, p.log, tail(p.log))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%v: %w); %s ends with:\n%s", p.name, last, ctx.Err(), p.log, tail(p.log))
		case <-tick.C:
		}
	}
}

// stop sends SIGTERM, and SIGKILL after a time, which is an error.
func (p *process) stop(within time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(within):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("%s was killed: it did not end within %v of SIGTERM; its log is %s", p.name, within, p.log)
}

// tail returns the last lines of a log.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
