package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
)

// limitsName is the environment variable with a child's limits.
const limitsName = "VAPP_CHILD_LIMITS"

// margin is the time that a child outlives its deadline if its parent died.
const margin = time.Second

func (l limits) environment(wall time.Duration) string {
	return fmt.Sprintf("%s=%d %d %d %d", limitsName, l.memory, l.stack, l.cpu, wall+margin)
}

func limitsOfEnvironment() (l limits, wall time.Duration, err error) {
	if _, err = fmt.Sscan(os.Getenv(limitsName), &l.memory, &l.stack, &l.cpu, &wall); err != nil {
		err = &TemplateError{KindSandbox, 0, limitsName + " holds no limits: this program is started by a server"}
	}
	return l, wall, err
}

// ServeSandbox is the child's main function. It limits its own memory and time, reads one call from
// r, executes it, and writes the reply to w. The program should exit after it, with status 1 if it
// returns an error. If the time is over, ServeSandbox ends the process.
func ServeSandbox(r io.Reader, w io.Writer) error {
	l, wall, err := limitsOfEnvironment()
	if err != nil {
		return err
	}
	firstToDie()
	startThreads(spareThreads)
	limited := limitMemory(l.memory)
	limitStack(l.stack)
	out := &replier{w: w}
	if _, err := io.WriteString(w, "\n"); err != nil { // signals that the limits are set
		return err
	}
	go out.watch(l.cpu, wall)
	var c sandboxCall
	if err := json.NewDecoder(r).Decode(&c); err != nil {
		return &TemplateError{KindSandbox, 0, "reading the call: " + err.Error()}
	}
	var reply sandboxReply
	if c.Grammar != nil && errors.As(limited, new(unsupportedError)) {
		limited = nil // limited by time only
	}
	switch {
	case limited != nil:
		err = limited
	case c.Grammar != nil:
		reply.Bytes, err = c.Grammar.try(l.memory)
	default:
		err = reply.render(c)
	}
	if err != nil {
		reply.fail(err)
	}
	return out.send(reply)
}

// spareThreads is the number of threads that a child starts before it limits its memory: the limit
// counts the whole stack of a thread, 8 MiB, and the Go runtime starts threads when it needs them.
const spareThreads = 4

// startThreads makes the Go runtime start n threads, which then wait for work.
func startThreads(n int) {
	var started, ended sync.WaitGroup
	end := make(chan struct{})
	for range n {
		started.Add(1)
		ended.Add(1)
		go func() {
			runtime.LockOSThread()
			started.Done()
			<-end
			runtime.UnlockOSThread()
			ended.Done()
		}()
	}
	started.Wait() // each has a thread
	close(end)
	ended.Wait()
}

// privateBytes is this process's private memory, now and at its peak.
type privateBytes struct{ now, most int64 }

// replier writes one reply.
type replier struct {
	mu sync.Mutex
	w  io.Writer
}

// send writes the reply; further calls block until the process ends.
func (r *replier) send(reply sandboxReply) error {
	r.mu.Lock()
	e := json.NewEncoder(r.w)
	e.SetEscapeHTML(false)
	return e.Encode(reply)
}

// watch ends the process when its time limit is reached.
func (r *replier) watch(cpu, wall time.Duration) {
	begun, used := time.Now(), processTime()
	for range time.Tick(20 * time.Millisecond) {
		if over := time.Since(begun) > wall; over || cpu > 0 && processTime()-used > cpu {
			status := 0
			if r.send(sandboxReply{Kind: KindTime, Msg: "it takes too long"}) != nil {
				status = 1
			}
			os.Exit(status)
		}
	}
}

func (r *sandboxReply) render(c sandboxCall) (err error) {
	c.Limits.smallStack = true
	t, err := NewTemplate(c.Source, c.Limits)
	if err != nil {
		return err
	}
	defer t.Close()
	r.Format = t.ContentFormat()
	if len(c.Vars) > 0 {
		r.Text, err = t.render(c.Now, c.Vars)
	}
	return err
}

func (r *sandboxReply) fail(err error) {
	*r = sandboxReply{Kind: KindSandbox, Msg: err.Error()}
	var e *TemplateError
	var g *Error
	var no unsupportedError
	switch {
	case errors.As(err, &e):
		r.Kind, r.Line, r.Msg = e.Kind, e.Line, e.Msg
	case errors.As(err, &g):
		r.Kind, r.Msg = g.Kind, g.Msg
	case errors.As(err, &no):
		r.Kind = KindUnsupported
	case transient(err):
		r.Kind = KindUnavailable
	}
}

// unsupportedError reports a feature that this system lacks.
type unsupportedError string

func (e unsupportedError) Error() string { return string(e) }
