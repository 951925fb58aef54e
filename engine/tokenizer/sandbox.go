package tokenizer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Sandbox renders templates that came with a request, and tries grammars, each in a child
// process of its own with a limit on memory and time, so that none can harm the server. It is safe for use by many goroutines.
type Sandbox struct {
	Exe      string        // a program that calls ServeSandbox, such as os.Executable()
	Args     []string      // the arguments that make it do so
	Children *Children     // limits the number of processes; nil: one pool for all such Sandboxes
	Time     time.Duration // of one child; 0 is 5 s
	Limits   Limits

	start func(*exec.Cmd) error // runs the child; nil: Cmd.Run
}

const (
	defaultSandboxTime   = 5 * time.Second
	defaultSandboxOutput = 8 << 20
)

// sandboxCall is what the parent writes to the child: one JSON object. Without
// Vars the child only compiles the template.
type sandboxCall struct {
	Source string          `json:"source"`
	Vars   json.RawMessage `json:"vars,omitempty"`
	Now    int64           `json:"now"`
	Limits Limits          `json:"limits"`
	// Grammar is compiled in place of all that.
	Grammar *trialCall `json:"grammar,omitempty"`
}

// sandboxReply is what the child writes back.
type sandboxReply struct {
	Text   string `json:"text"`
	Bytes  int64  `json:"bytes,omitempty"` // of memory, of a grammar
	Format string `json:"format"`
	Kind   Kind   `json:"kind,omitempty"`
	Line   int    `json:"line,omitempty"`
	Msg    string `json:"msg,omitempty"`
}

// RenderSandboxed renders source with vars, a JSON object as Template.RenderAt
// takes it. The error is a *TemplateError: as in-process, or of KindMemory,
// KindTime, KindBusy, KindUnavailable, KindUnsupported or KindSandbox; or ctx's own where
// ctx ended first.
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
	if s.Time <= 0 {
		s.Time = defaultSandboxTime
	}
	if s.Children == nil {
		s.Children = processChildren
	}
	if s.Limits.OutputBytes <= 0 {
		s.Limits.OutputBytes = defaultSandboxOutput
	}
	if s.start == nil {
		s.start = (*exec.Cmd).Run
	}
	s.Limits = s.Limits.orDefault()
	return s
}

func (s Sandbox) call(ctx context.Context, source string, vars []byte) (sandboxReply, error) {
	if len(source) > maxTemplate {
		return sandboxReply{}, failure(KindTemplate, 0, "the template is over 1 MiB")
	}
	t, err := s.begin(ctx, len(source)+len(vars))
	if err != nil {
		return sandboxReply{}, err
	}
	defer t.end()
	return t.do(ctx, sandboxCall{Source: source, Vars: vars, Now: localSeconds(time.Now())}, func() bool { return false })
}

// run has a child with these limits do one thing.
func (s Sandbox) run(ctx context.Context, l limits, c sandboxCall) (sandboxReply, error) {
	c.Limits = s.Limits
	in, err := json.Marshal(c)
	if err != nil {
		return sandboxReply{}, failure(KindVars, 0, err.Error())
	}
	timed, cancel := context.WithTimeout(ctx, s.Time)
	defer cancel()
	cmd := exec.CommandContext(timed, s.Exe, s.Args...)
	cmd.Path = programOf(s.Exe, cmd.Path)
	// not the parent's environment, which may hold secrets
	cmd.Env = []string{"MALLOC_ARENA_MAX=1", "GOMAXPROCS=1", "GOGC=50", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH"), l.environment(s.Time)}
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = time.Second
	out, complaint := &capped{max: 2*s.Limits.OutputBytes + 64<<10}, &capped{max: 64 << 10, drop: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, complaint
	// The child is killed when the thread that started it ends, so the thread stays.
	runtime.LockOSThread()
	err = s.start(cmd)
	runtime.UnlockOSThread()
	switch {
	case ctx.Err() != nil:
		return sandboxReply{}, context.Cause(ctx)
	case timed.Err() != nil:
		return sandboxReply{}, &TemplateError{KindTime, 0, fmt.Sprintf("rendering took more than %v", s.Time)}
	case err != nil:
		return sandboxReply{}, broken(err, l, out.Len() > 0, complaint.String())
	}
	return readReply(out.Bytes())
}

func readReply(b []byte) (sandboxReply, error) {
	var r sandboxReply
	if err := json.Unmarshal(b, &r); err != nil {
		return r, &TemplateError{KindSandbox, 0, "the child process gave no answer"}
	}
	if r.Kind != 0 {
		return sandboxReply{}, &TemplateError{r.Kind, r.Line, r.Msg}
	}
	return r, nil
}

// errLongReply is the error of a child whose reply is too long.
var errLongReply = errors.New("the reply is too long")

// capped keeps up to max bytes; beyond them it fails, or drops.
type capped struct {
	bytes.Buffer
	max  int
	drop bool
}

func (c *capped) Write(b []byte) (int, error) {
	if room := c.max - c.Len(); len(b) > room {
		if !c.drop {
			return 0, errLongReply
		}
		c.Buffer.Write(b[:room])
		return len(b), nil
	}
	return c.Buffer.Write(b)
}
