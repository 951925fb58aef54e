// Package agenda runs a list of parts, each in its own process with its own time limit, and makes a
// report of their results. A part that fails, crashes or hangs does not stop the others. It must
// not know what the parts measure; it does not import packages of vapp. Start reading at Run.Do.
package agenda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Kind is the format of a part's output.
type Kind string

// The kinds.
const (
	Text    Kind = "text"    // shown unchanged
	Tests   Kind = "tests"   // a Go test binary's -test.v
	Bench   Kind = "bench"   // the JSON of vapp bench engine, which prints its rows when interrupted
	Ops     Kind = "ops"     // the same, of which only the op times are shown
	Serving Kind = "serving" // the JSON of vapp bench serve
	Rates   Kind = "rates"   // a JSON object of names and figures, or lists of such
)

// Part is one process.
type Part struct {
	Name   string        // for --part, such as "suite"
	Title  string        // of its section in the report
	Kind   Kind          // of its standard output
	Budget time.Duration // time limit; then the process and its children are ended
	Args   []string      // the program, from the bundle or the path, and its arguments
	Dir    string        // working directory, relative to the bundle; "": the bundle
	Env    []string      // in addition to the runner's environment
	// GraphsPart names the part with the same rows and CUDA graphs, for a part without graphs;
	// else "".
	GraphsPart string
	// DependentPart names the part with the same rows and dependent launches, for a part whose launches are plain; else "".
	DependentPart string
	// Without is a text in the last line of errors, or anywhere in the output, which means that
	// the machine lacks what the part measures; the part is then Absent, not Failed. "": no such
	// text.
	Without string
	// Needed means that nothing after the part can be measured if it fails or crashes: the parts
	// after it are not run.
	Needed bool
}

// Status is the result of a part.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Failed  Status = "failed"  // exit code other than 0
	Crashed Status = "crashed" // ended by a signal
	Late    Status = "late"    // its time or the total time was over
	Absent  Status = "absent"  // the program is missing, or it reported that the machine lacks what it measures
	NotRun  Status = "not run" // no time left, or a part failed that it needs
)

// Bad reports whether a part has run and has not ended well.
func (s Status) Bad() bool { return s == Failed || s == Crashed || s == Late }

// Skipped is the exit code of a part that has nothing to measure on the machine, as in automake's
// tests; the last line of its output is the reason.
const Skipped = 77

// Result is a finished part. Only the end of its output is kept.
type Result struct {
	Name          string          `json:"name"`
	Title         string          `json:"title"`
	Kind          Kind            `json:"kind"`
	GraphsPart    string          `json:"beside,omitempty"`
	DependentPart string          `json:"beside_dependent,omitempty"`
	Command       []string        `json:"command"`
	Status        Status          `json:"status"`
	Why           string          `json:"why,omitempty"`
	Seconds       float64         `json:"seconds"`
	Output        string          `json:"output,omitempty"` // standard output that is not JSON
	Errors        string          `json:"errors,omitempty"` // end of standard error
	Data          json.RawMessage `json:"data,omitempty"`   // standard output that is JSON
}

// Run is the run of an agenda.
type Run struct {
	Bundle string        // directory of the programs
	Whole  time.Duration // time limit of all parts together
	// Also are directories in which programs are looked for that are neither in the bundle nor on
	// the path.
	Also []string
	// KeepGoing runs the parts after a Needed one that failed.
	KeepGoing bool
	// Each is called after each part with the results so far.
	Each func([]Result) error
}

const (
	least = 2 * time.Second // a part is not started with less time left
	grace = 6 * time.Second // a Bench is interrupted this long before its time ends, to print its rows
)

// Do runs the parts in order. It returns only errors of Each and of ctx; errors of parts are in
// their results.
func (r Run) Do(ctx context.Context, parts []Part) ([]Result, error) {
	end := time.Now().Add(r.Whole)
	var out []Result
	failed := "" // the name of a Needed part
	for _, p := range parts {
		res := Result{Name: p.Name, Title: p.Title, Kind: p.Kind, GraphsPart: p.GraphsPart, DependentPart: p.DependentPart, Command: p.Args}
		if left := time.Until(end); failed != "" {
			res.Status, res.Why = NotRun, failed+" failed"
		} else if left < least {
			res.Status, res.Why = NotRun, fmt.Sprintf("the agenda's %v were over", r.Whole)
		} else {
			r.part(ctx, p, min(p.Budget, left), &res)
		}
		if p.Needed && !r.KeepGoing && (res.Status == Failed || res.Status == Crashed) {
			failed = p.Name
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
	quiet, delay := most, least // bound for children that keep the pipes open
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
	res.Status, res.Why = statusOf(ctx, err, most, res)
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

// statusOf returns the status of an ended process and the reason.
func statusOf(ctx context.Context, err error, most time.Duration, res *Result) (Status, string) {
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
	if line := reason(res); line != "" {
		return Failed, fmt.Sprintf("%v: %s", err, line)
	}
	return Failed, err.Error()
}

// location is the file and line before what a failed test says.
var location = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// reason returns the line in which a failed process says why: the last one of vapp's errors, or of all errors, or the
// first one that a test wrote with its place; "": there is none.
func reason(res *Result) string {
	line := lastLine(res.Errors)
	for l := range strings.Lines(res.Errors) {
		if strings.HasPrefix(l, "vapp: ") {
			line = l
		}
	}
	if res.Kind == Tests {
		for l := range strings.Lines(res.Output) {
			if at := location.FindString(l); at != "" && !strings.Contains(l, "FIGURE {") {
				line = l[len(at):]
				break
			}
		}
	}
	return shortened(strings.TrimSpace(line), 300)
}

// shortened returns at most n bytes of a line.
func shortened(line string, n int) string {
	if len(line) <= n {
		return line
	}
	return strings.ToValidUTF8(line[:n], "") + "…"
}

// find returns the path of a program in the bundle, or else on PATH, or else in Also.
func (r Run) find(name string) (string, error) {
	at, err := filepath.Abs(filepath.Join(r.Bundle, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	if at, err = exec.LookPath(name); err == nil {
		return at, nil
	}
	for _, dir := range r.Also {
		if at, err = exec.LookPath(filepath.Join(dir, name)); err == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("%s is neither in the bundle nor on the path", name)
}
