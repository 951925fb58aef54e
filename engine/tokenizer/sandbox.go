package tokenizer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Sandbox renders templates that came with a request, and tries grammars, each in a child
// process of its own with a limit on memory and time, so that none can harm the server. It is safe for use by many goroutines.
type Sandbox struct {
	Exe    string        // a program that calls ServeSandbox, such as os.Executable()
	Args   []string      // the arguments that make it do so
	Memory int64         // bytes of address space beyond those of a bare process; 0 is 256 MiB
	Time   time.Duration // for the whole render; 0 is 5 s
	Limits Limits
}

const (
	defaultSandboxMemory = 256 << 20
	defaultSandboxTime   = 5 * time.Second
)

// sandboxCall is what the parent writes to the child: one JSON object. Without
// Vars the child only compiles the template.
type sandboxCall struct {
	Source string          `json:"source"`
	Vars   json.RawMessage `json:"vars,omitempty"`
	Now    int64           `json:"now"`
	Limits Limits          `json:"limits"`
	Memory int64           `json:"memory"`
	// Grammar is compiled in place of all that.
	Grammar *trialCall `json:"grammar,omitempty"`
}

// sandboxReply is what the child writes back.
type sandboxReply struct {
	Text   string `json:"text"`
	Format string `json:"format"`
	Kind   Kind   `json:"kind,omitempty"`
	Line   int    `json:"line,omitempty"`
	Msg    string `json:"msg,omitempty"`
}

// RenderSandboxed renders source with vars, a JSON object as Template.RenderAt
// takes it. The error is a *TemplateError: as in-process, or of KindMemory,
// KindTime or KindSandbox; or ctx's own where ctx ended first.
func RenderSandboxed(ctx context.Context, s Sandbox, source string, vars any) (string, error) {
	b, err := marshalVars(vars)
	if err != nil {
		return "", err
	}
	if len(b) == 0 {
		return "", failure(KindVars, 0, "not an object")
	}
	r, err := s.call(ctx, source, b)
	return r.Text, err
}

// ContentFormatSandboxed compiles source in the child and returns the shape of
// message content that it wants, as Template.ContentFormat does.
func ContentFormatSandboxed(ctx context.Context, s Sandbox, source string) (string, error) {
	r, err := s.call(ctx, source, nil)
	return r.Format, err
}

func (s Sandbox) orDefault() Sandbox {
	if s.Memory <= 0 {
		s.Memory = defaultSandboxMemory
	}
	if s.Time <= 0 {
		s.Time = defaultSandboxTime
	}
	s.Limits = s.Limits.orDefault()
	return s
}

func (s Sandbox) call(ctx context.Context, source string, vars []byte) (sandboxReply, error) {
	if len(source) > maxTemplate {
		return sandboxReply{}, failure(KindTemplate, 0, "the template is over 1 MiB")
	}
	return s.run(ctx, sandboxCall{Source: source, Vars: vars, Now: localSeconds(time.Now())})
}

// run has the child do one thing.
func (s Sandbox) run(ctx context.Context, c sandboxCall) (sandboxReply, error) {
	s = s.orDefault()
	c.Limits, c.Memory = s.Limits, s.Memory
	in, err := json.Marshal(c)
	if err != nil {
		return sandboxReply{}, failure(KindVars, 0, err.Error())
	}
	timed, cancel := context.WithTimeout(ctx, s.Time)
	defer cancel()
	cmd := exec.CommandContext(timed, s.Exe, s.Args...)
	// not the parent's environment: what it holds is nobody else's business
	cmd.Env = []string{"MALLOC_ARENA_MAX=1", "GOMAXPROCS=1", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
	cmd.WaitDelay = time.Second
	// a character may take six bytes in JSON
	out, complaint := &capped{max: 6*s.Limits.OutputBytes + 64<<10}, &capped{max: 64 << 10, drop: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, complaint
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return sandboxReply{}, ctx.Err()
	case timed.Err() != nil:
		return sandboxReply{}, &TemplateError{KindTime, 0, fmt.Sprintf("rendering took more than %v", s.Time)}
	case err != nil:
		return sandboxReply{}, s.broken(err, complaint.String())
	}
	return readReply(out.Bytes())
}

func readReply(b []byte) (sandboxReply, error) {
	var r sandboxReply
	if err := json.Unmarshal(b, &r); err != nil {
		return r, &TemplateError{KindSandbox, 0, "the render process gave no answer"}
	}
	if r.Kind != 0 {
		return sandboxReply{}, &TemplateError{r.Kind, r.Line, r.Msg}
	}
	return r, nil
}

// broken says why the child died, from what Go or Rust wrote to its stderr.
func (s Sandbox) broken(err error, complaint string) error {
	for _, sign := range []string{"memory allocation of", "out of memory", "cannot allocate memory", "pthread_create failed", "stack overflow"} {
		if strings.Contains(complaint, sign) {
			return &TemplateError{KindMemory, 0, fmt.Sprintf("rendering needs more than the limit of %d bytes", s.Memory)}
		}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return &TemplateError{KindSandbox, 0, oneLine("the render process could not be run: " + err.Error())}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n")
	return &TemplateError{KindSandbox, 0, oneLine("the render process died (" + err.Error() + "): " + first)}
}

// ServeSandbox is the child's side: it reads one call from r, limits its own
// memory, renders, and writes the reply to w. The program should exit after it,
// with status 1 if it returns an error.
func ServeSandbox(r io.Reader, w io.Writer) error {
	var c sandboxCall
	if err := json.NewDecoder(r).Decode(&c); err != nil {
		return &TemplateError{KindSandbox, 0, "reading the call: " + err.Error()}
	}
	var reply sandboxReply
	limited := limitMemory(c.Memory)
	if c.Grammar != nil {
		// where the system has no limit on memory, the time alone bounds it
		if err := c.Grammar.try(); err != nil {
			reply.fail(err)
		}
		return json.NewEncoder(w).Encode(reply)
	}
	if err := limited; err != nil {
		reply.fail(&TemplateError{KindSandbox, 0, err.Error()})
	} else if err := reply.render(c); err != nil {
		reply.fail(err)
	}
	return json.NewEncoder(w).Encode(reply)
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
	switch {
	case errors.As(err, &e):
		r.Kind, r.Line, r.Msg = e.Kind, e.Line, e.Msg
	case errors.As(err, &g):
		r.Kind, r.Msg = g.Kind, g.Msg
	}
}

// capped keeps up to max bytes; beyond them it fails, or drops.
type capped struct {
	bytes.Buffer
	max  int
	drop bool
}

func (c *capped) Write(b []byte) (int, error) {
	if room := c.max - c.Len(); len(b) > room {
		if !c.drop {
			return 0, errors.New("the reply is too long")
		}
		c.Buffer.Write(b[:room])
		return len(b), nil
	}
	return c.Buffer.Write(b)
}
