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

// Sandbox renders templates that came with a request, and tries grammars. Each job runs in a child
// process with limits on memory and time, so that it cannot harm the server. It is safe for use by
// many goroutines.
type Sandbox struct {
	Exe      string        // a program that calls ServeSandbox, such as os.Executable()
	Args     []string      // the arguments for that
	Children *Children     // limits the number of processes; nil: one pool for all such Sandboxes
	Time     time.Duration // for one child; 0 is 5 s
	Limits   Limits

	start func(*exec.Cmd) error // runs the child; nil: Cmd.Run
}

const (
	defaultSandboxTime   = 5 * time.Second
	defaultSandboxOutput = 8 << 20
)

// sandboxCall is the JSON object that the parent sends to the child. Without Vars the child only
// compiles the template.
type sandboxCall struct {
	Source string          `json:"source"`
	Vars   json.RawMessage `json:"vars,omitempty"`
	Now    int64           `json:"now"`
	Limits Limits          `json:"limits"`
	// Grammar, if set, is compiled; the other fields are ignored.
	Grammar *trialCall `json:"grammar,omitempty"`
}

// sandboxReply is the child's reply.
type sandboxReply struct {
	Text   string `json:"text"`
	Bytes  int64  `json:"bytes,omitempty"` // memory of a grammar
	Format string `json:"format"`
	Kind   Kind   `json:"kind,omitempty"`
	Line   int    `json:"line,omitempty"`
	Msg    string `json:"msg,omitempty"`
}

// RenderSandboxed renders source in a child with vars, a JSON object as for Template.RenderAt. The
// error is a *TemplateError: one of RenderAt's kinds, or of KindMemory, KindTime, KindBusy,
// KindUnavailable, KindUnsupported or KindSandbox. It is ctx's own error if ctx ended first.
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

// ContentFormatSandboxed compiles source in a child and returns the content format that the
// template expects, as Template.ContentFormat does.
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
	t, err := s.acquire(ctx, len(source)+len(vars))
	if err != nil {
		return sandboxReply{}, err
	}
	defer t.release()
	return t.do(ctx, sandboxCall{Source: source, Vars: vars, Now: localSeconds(time.Now())}, func() bool { return false })
}

// run runs one call in a child with limits l.
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
	// The parent's environment may hold secrets, so the child does not inherit it.
	cmd.Env = []string{"MALLOC_ARENA_MAX=1", "GOMAXPROCS=1", "GOGC=50", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH"), l.environment(s.Time)}
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = time.Second
	out, stderr := &limitedBuffer{max: 2*s.Limits.OutputBytes + 64<<10}, &limitedBuffer{max: 64 << 10, drop: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, stderr
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
		return sandboxReply{}, childError(err, l, out.Len() > 0, stderr.String())
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

// errLongReply reports a reply that is too long.
var errLongReply = errors.New("the reply is too long")

// limitedBuffer keeps up to max bytes. Beyond them it fails, or drops the rest if drop is set.
type limitedBuffer struct {
	bytes.Buffer
	max  int
	drop bool
}

func (c *limitedBuffer) Write(b []byte) (int, error) {
	if left := c.max - c.Len(); len(b) > left {
		if !c.drop {
			return 0, errLongReply
		}
		c.Buffer.Write(b[:left])
		return len(b), nil
	}
	return c.Buffer.Write(b)
}
