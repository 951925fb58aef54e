// Package agenda runs a list of parts, each a process of its own with a time of its own, so
// that one that fails, crashes or hangs hides nothing of the others, and makes one page of
// what they gave.
package agenda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Kind is how what a part prints is read.
type Kind string

// The kinds.
const (
	Text    Kind = "text"    // shown as it is
	Tests   Kind = "tests"   // a Go test binary's -test.v
	Bench   Kind = "bench"   // the JSON of vapp bench engine, which prints what it has when it is interrupted
	Ops     Kind = "ops"     // the same, of which the times of ops are shown
	Serving Kind = "serving" // the JSON of vapp bench serve
	Rates   Kind = "rates"   // a JSON object of names and figures, or lists of such
)

// Part is one process.
type Part struct {
	Name   string        // in --part: "suite"
	Title  string        // of its section
	Kind   Kind          // of its standard output
	Budget time.Duration // then it is ended, with all that it started
	Args   []string      // the program, of the bundle or the path, and its arguments
	Dir    string        // of the bundle, that the process runs in; "": the bundle
	Env    []string      // beside the runner's own
	// Beside names the part that measures the same by graphs, of one without graphs.
	Beside string
	// Without is what a line says, the last of the errors or any of the output, where the machine lacks
	// what is measured: the part is Absent then, not Failed. "": it never is for that.
	Without string
}

// Status is what became of a part.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Failed  Status = "failed"  // it ended with a code other than 0
	Crashed Status = "crashed" // a signal ended it
	Late    Status = "late"    // its time or the whole's was over
	Absent  Status = "absent"  // its program is not here, or said that what it measures is not
	NotRun  Status = "not run" // no time was left
)

// Skipped is the exit code of a part that has nothing to measure on the machine, as
// automake's tests have it; its last line says why.
const Skipped = 77

// Result is a part that was run. Of what it printed the end is kept.
type Result struct {
	Name    string          `json:"name"`
	Title   string          `json:"title"`
	Kind    Kind            `json:"kind"`
	Beside  string          `json:"beside,omitempty"`
	Command []string        `json:"command"`
	Status  Status          `json:"status"`
	Why     string          `json:"why,omitempty"`
	Seconds float64         `json:"seconds"`
	Output  string          `json:"output,omitempty"` // standard output that is no JSON
	Errors  string          `json:"errors,omitempty"` // standard error, its end
	Data    json.RawMessage `json:"data,omitempty"`   // standard output that is JSON
}

// Run is an agenda being worked through.
type Run struct {
	Bundle string        // the directory of the programs
	Whole  time.Duration // for all parts together
	// Each is called after each part, with all that have run so far.
	Each func([]Result) error
}

const (
	least = 2 * time.Second // the shortest time that a part is begun with
	grace = 6 * time.Second // of a Bench's time: then it is asked to print what it has
)

// Do runs the parts in order. Its error is Each's, or ctx's: those of parts are in their
// results.
func (r Run) Do(ctx context.Context, parts []Part) ([]Result, error) {
	end := time.Now().Add(r.Whole)
	var out []Result
	for _, p := range parts {
		res := Result{Name: p.Name, Title: p.Title, Kind: p.Kind, Beside: p.Beside, Command: p.Args}
		if left := time.Until(end); left < least {
			res.Status, res.Why = NotRun, fmt.Sprintf("the agenda's %v were over", r.Whole)
		} else {
			r.part(ctx, p, min(p.Budget, left), &res)
		}
		out = append(out, res)
		if err := r.Each(out); err != nil {
			return out, err
		}
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
	}
	return out, nil
}

// part runs one process.
func (r Run) part(ctx context.Context, p Part, most time.Duration, res *Result) {
	exe, err := r.find(p.Args[0])
	if err != nil {
		res.Status, res.Why = Absent, err.Error()
		return
	}
	quiet, delay := most, least // for what it started and did not end
	asked := p.Kind == Bench || p.Kind == Ops
	if asked {
		delay = min(grace, most/2)
		quiet = most - delay
	}
	ctx, stop := context.WithTimeout(ctx, quiet)
	defer stop()
	cmd := exec.CommandContext(ctx, exe, p.Args[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(r.Bundle, p.Dir), append(os.Environ(), p.Env...)
	cmd.WaitDelay = delay
	end := whole(cmd, asked)
	said, wrote := &tail{most: 4 << 20}, &tail{most: 64 << 10}
	cmd.Stdout, cmd.Stderr = said, wrote
	start := time.Now()
	err = cmd.Run()
	end()
	res.Seconds = time.Since(start).Seconds()
	res.Errors = wrote.String()
	if b := said.bytes(); json.Valid(b) && p.Kind != Text && p.Kind != Tests {
		res.Data = json.RawMessage(b)
	} else {
		res.Output = said.String()
	}
	res.Status, res.Why = became(ctx, err, most, res)
	if res.Status == OK && res.Data == nil && p.Kind != Text && p.Kind != Tests {
		res.Status, res.Why = Failed, "it printed no JSON"
	}
	if res.Status == OK && p.Kind == Tests && !strings.Contains(res.Output, "--- PASS") {
		res.Status, res.Why = Failed, "no test of it ran"
	}
	if res.Status == Failed && p.Without != "" {
		for _, line := range append(strings.Split(res.Output, "\n"), lastLine(res.Errors)) {
			if strings.Contains(line, p.Without) {
				res.Status, res.Why = Absent, strings.TrimSpace(line)
			}
		}
	}
}

// became says how a process ended.
func became(ctx context.Context, err error, most time.Duration, res *Result) (Status, string) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return OK, ""
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return Late, fmt.Sprintf("ended after its %v", most.Round(time.Millisecond))
	case ctx.Err() != nil:
		return Late, context.Cause(ctx).Error()
	case errors.As(err, &exit) && exit.ExitCode() == Skipped:
		return Absent, lastLine(res.Errors)
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		return Crashed, exit.Error()
	}
	return Failed, err.Error()
}

// find is a program of the bundle, or else of the path.
func (r Run) find(name string) (string, error) {
	at, err := filepath.Abs(filepath.Join(r.Bundle, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	if at, err = exec.LookPath(name); err != nil {
		return "", fmt.Errorf("%s is neither in the bundle nor on the path", name)
	}
	return at, nil
}
