package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"vapp.dev/appliance"
	"vapp.dev/appliance/hub"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/tools/doctor"
	"vapp.dev/tools/doctor/facts"
)

func newDoctor() *cobra.Command {
	var json, offline, rates bool
	var backend string
	c := &cobra.Command{
		Use:   "doctor [PROFILE|MODEL]",
		Short: "Look for what keeps a server from starting or running well here",
		Long: `Doctor looks at this machine: processor and kernel variant, memory and control
groups, huge pages, GPU with driver and libraries, limits of the process, access to
the hub, free disk space, clock, port and template sandbox. With a PROFILE or a
MODEL it also looks at the model, plan, disk and port.

` + argHelp + `

Each row is ok, a note (worth knowing) or a problem, with what to do. It changes
nothing, reads at most 64 MiB of the model, multiplies once with cuBLASLt on a GPU,
and takes at most ten seconds. The exit code is 1 if there is a problem.

--measure measures the CPU kernels of this machine instead, in about a minute, and
keeps their rates in the user's cache folder for vapp plan --speed. Measure on a
quiet machine.`,
		Args: needArgs(0, 1, "at most one profile or model"),
		RunE: func(c *cobra.Command, args []string) error {
			if rates {
				return measureOnly(c, args)
			}
			m, err := withBackend(c, backend)
			if err != nil {
				return err
			}
			m.Hub.Offline = m.Hub.Offline || offline
			s := facts.Sources{
				Machine: m, Native: native, GPU: gpuFacts, Library: libraryFacts, Sandbox: trySandbox, Root: os.DirFS("/"), Built: builtAt(),
				Hub: hub.NewClient(m.Hub, "vapp/"+buildVersion()),
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if len(args) == 1 {
				s.Profile = args[0]
				path, with, err := readInTime(ctx, func() (string, appliance.Machine, error) {
					return profileArg(c, args[0], m, argUse{offline: offline, ctx: ctx})
				})
				var usage *usageError
				var exit exitError
				if errors.As(err, &usage) || errors.As(err, &exit) {
					return err
				}
				if s.Failed = err; err == nil {
					s.Profile, s.Machine = path, with
				}
			}
			f, err := facts.Gather(ctx, s)
			if err != nil {
				return err
			}
			list := doctor.Judge(f)
			problems := doctor.Count(list, doctor.Problem)
			if json {
				err = asJSON(c.OutOrStdout(), doctorReport{buildVersion(), problems, doctor.Count(list, doctor.Note), list})
			} else {
				err = findingsTable(c.OutOrStdout(), list, columnsOf(os.Stdout))
			}
			if err == nil && problems > 0 {
				err = exitError(1)
			}
			return err
		},
	}
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	c.Flags().BoolVar(&offline, "offline", false, "do not use the network")
	c.Flags().BoolVar(&rates, "measure", false, "measure the rates of this machine's CPU kernels, for vapp plan --speed")
	backendFlag(c, &backend)
	profileFlags(c, true)
	return c
}

// measureOnly runs doctor --measure, which looks at nothing else.
func measureOnly(c *cobra.Command, args []string) error {
	others := ""
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "measure" {
			others = "--" + f.Name
		}
	})
	if len(args) > 0 {
		others = args[0]
	}
	if others != "" {
		return &usageError{fmt.Errorf("--measure: it measures the CPU of this machine alone; leave out %s", others), c.CommandPath()}
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return measureRates(ctx, c)
}

// readingTime bounds the reading of a profile and of the headers of its model.
const readingTime = 4 * time.Second

// readInTime returns what read returns, or an error if it takes too long: a file system that hangs
// is a finding.
func readInTime(ctx context.Context, read func() (string, appliance.Machine, error)) (string, appliance.Machine, error) {
	type result struct {
		path string
		m    appliance.Machine
		err  error
	}
	done := make(chan result, 1)
	go func() {
		path, m, err := read()
		done <- result{path, m, err}
	}()
	select {
	case r := <-done:
		return r.path, r.m, r.err
	case <-ctx.Done():
		return "", appliance.Machine{}, context.Canceled
	case <-time.After(readingTime):
		return "", appliance.Machine{}, fmt.Errorf("not read within %v; the file system may hang", readingTime)
	}
}

// doctorReport is the output of vapp doctor --json.
type doctorReport struct {
	Version  string           `json:"version"`
	Problems int              `json:"problems"`
	Notes    int              `json:"notes"`
	Findings []doctor.Finding `json:"findings"`
}

// gpuFacts asks the driver for its devices. It opens none.
func gpuFacts() facts.GPU {
	g := facts.GPU{Built: driver.Built}
	if !g.Built {
		return g
	}
	list, err := driver.Devices()
	if err != nil {
		var old *driver.DriverTooOld
		var none *driver.NoDriver
		if g.Err = err.Error(); errors.As(err, &old) {
			g.Err, g.Remedy = old.Why(), old.Remedy()
		}
		g.Present = !errors.As(err, &none) // a driver is installed
		return g
	}
	g.Present, g.Driver = true, list[0].CUDA()
	var loads []string
	for _, i := range list {
		code, err := i.Code()
		var old *driver.DriverTooOld
		if err == nil {
			what := code.String()
			if code.Dependent(i.Driver) {
				what += " (dependent launches)"
			}
			loads = append(loads, what)
		} else if errors.As(err, &old) {
			g.Err, g.Remedy = old.Why(), old.Remedy()
		}
		g.Devices = append(g.Devices, i.String())
		if i.Prohibited && g.Busy == "" {
			g.Busy = (&driver.BusyError{Device: i}).Error()
		}
	}
	if g.Loads = strings.Join(slices.Compact(loads), ", "); g.Loads != "" {
		g.Err, g.Remedy = "", "" // of another device
	}
	return g
}

// libraryFacts finds cuBLASLt and makes a small product with it, as the server's Probe does. It opens a device only where there
// is a library.
func libraryFacts() facts.Library {
	list, err := driver.Devices()
	if err != nil {
		return facts.Library{} // the facts of the GPU say so
	}
	if !slices.ContainsFunc(list, func(i driver.Info) bool { _, err := i.Code(); return err == nil }) {
		return facts.Library{} // no server runs here
	}
	return facts.Library(cuda.FindLibrary(list))
}

// trySandbox renders a template in a child process, as requests do.
func trySandbox(ctx context.Context) error {
	box, err := templateSandbox()
	if err != nil {
		return err
	}
	got, err := tokenizer.RenderSandboxed(ctx, box, "{{ word }}", map[string]any{"word": "rendered"})
	if err == nil && got != "rendered" {
		err = fmt.Errorf("the child rendered %.40q", got)
	}
	return err
}

// builtAt returns the time of the commit that this binary was built from, or else of its file; the
// zero time if neither is known.
func builtAt() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
					return t
				}
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return time.Time{}
	}
	st, err := os.Stat(exe)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

// columnsOf returns the width of a terminal, 100 for other files.
func columnsOf(f *os.File) int {
	if wide, _, err := term.GetSize(int(f.Fd())); err == nil && wide > 0 {
		return min(wide, 120)
	}
	return 100
}

// findingsTable prints a row for each finding, with what to do below it, and a summary.
func findingsTable(w io.Writer, list []doctor.Finding, columns int) error {
	topics := 0
	for _, f := range list {
		topics = max(topics, len(f.Topic))
	}
	var b strings.Builder
	for _, f := range list {
		lead := fmt.Sprintf("%-8s %-*s  ", f.State, topics, f.Topic)
		hangText(&b, lead, f.Found, columns)
		if f.Do != "" {
			hangText(&b, strings.Repeat(" ", len(lead))+"→ ", f.Do, columns)
		}
	}
	problems, notes := doctor.Count(list, doctor.Problem), doctor.Count(list, doctor.Note)
	switch {
	case problems > 0:
		fmt.Fprintf(&b, "\n%s, %s\n", plural(problems, "problem"), plural(notes, "note"))
	case notes > 0:
		fmt.Fprintf(&b, "\nno problems, %s\n", plural(notes, "note"))
	default:
		b.WriteString("\nno problems\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// hangText writes lead and a text that is wrapped behind it.
func hangText(b *strings.Builder, lead, text string, columns int) {
	width := func(s string) int { return len([]rune(s)) }
	indent := strings.Repeat(" ", width(lead))
	line, empty := lead, true
	for _, word := range strings.Fields(text) {
		switch {
		case empty:
			line += word
		case width(line)+1+width(word) <= columns:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = indent + word
		}
		empty = false
	}
	b.WriteString(line + "\n")
}
