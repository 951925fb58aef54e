// Command gpu measures vapp on a machine with a GPU, without a network: it runs three agendas of
// processes from a bundle (made by scripts/gpu-bundle.sh), A, B and C, and writes report.md and
// results.json of each. A part that fails, crashes or hangs does not stop the others, except for the
// first kernels. It must not import packages of vapp; it uses the binaries of the bundle. Start
// reading at runs in parts.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"vapp.dev/tests/gpu/agenda"
)

func main() { os.Exit(run()) }

const usage = `Usage: gpu-check --out DIR [flags] [A] [B] [C]

  A  correctness: kernels, the models' shapes, the backend's suite, graphs, logits
  B  speed: what the machine reaches, kernels, models, cuBLASLt and PyTorch beside them
  C  serving: streams, long contexts, servers

Each writes report.md and results.json after each of its parts: into DIR where one is
named, else into DIR/A, DIR/B and DIR/C. B and C are not run where tests of A fail.

`

// command is the command line.
type command struct {
	out, bundle, names     string
	most                   time.Duration
	small, list, keepGoing bool
	runs                   []agendaRun
}

func run() int {
	if len(os.Args) > 1 && os.Args[1] == "serve" { // run by a part of the agenda
		return serve(os.Args[2:])
	}
	c, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		return 2
	case c.list:
		for _, r := range c.runs {
			fmt.Printf("%s %s, %v\n", r.name, r.title, r.most)
			for _, p := range r.parts {
				fmt.Printf("  %-22s %6s  %s\n", p.Name, p.Budget, strings.Join(p.Args, " "))
			}
		}
		return 0
	}
	return c.run()
}

// parse reads the command line. Flags and runs may come in any order.
func parse(args []string) (c command, err error) {
	f := flag.NewFlagSet("gpu-check", flag.ContinueOnError)
	f.SetOutput(os.Stdout)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.StringVar(&c.out, "out", "", "the directory that reports are written to")
	f.StringVar(&c.bundle, "bundle", bundleDir(), "the directory of the bundle")
	f.StringVar(&c.names, "part", "", "run these parts alone, with commas between")
	f.DurationVar(&c.most, "time", 0, "for all parts of a run together; 0: 8 minutes for A, 9 for B and C, less 20 s")
	f.BoolVar(&c.small, "small", false, "what an emulated device can do in minutes: small checkpoints alone")
	f.BoolVar(&c.list, "list", false, "print the parts and stop")
	f.BoolVar(&c.keepGoing, "keep-going", false, "go on where kernels fail")
	var named []string
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			return c, err
		}
		if args = f.Args(); len(args) > 0 {
			named, args = append(named, args[0]), args[1:]
		}
	}
	all := runs(c.small)
	for _, n := range named {
		if !slices.ContainsFunc(all, func(r agendaRun) bool { return r.name == n }) {
			return c, fmt.Errorf("there is no run %q: A, B and C are", n)
		}
	}
	for _, r := range all {
		if len(named) == 0 || slices.Contains(named, r.name) {
			c.runs = append(c.runs, r)
		}
	}
	if c.runs, err = choose(c.runs, c.names); err != nil {
		return c, err
	}
	if c.out == "" && !c.list {
		return c, errors.New("give --out DIR, the directory of the reports")
	}
	if len(named) != 1 {
		for i := range c.runs {
			c.runs[i].dir = c.runs[i].name
		}
	}
	return c, nil
}

// run does the runs and returns the exit code: 1 if a part failed.
func (c command) run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, failed := 0, false
	for _, r := range c.runs {
		if failed && !c.keepGoing {
			fmt.Printf("%s %s: not run, because tests of A failed; --keep-going runs it\n", r.name, r.title)
			continue
		}
		if c.most > 0 {
			r.most = c.most
		}
		dir := filepath.Join(c.out, r.dir)
		start := time.Now()
		results, err := c.check(ctx, dir, r)
		if err != nil {
			fmt.Fprintln(os.Stderr, "gpu-check:", err)
			return 1
		}
		fmt.Printf("%s %s: %s, in %.0f s: %s\n", r.name, r.title, agenda.Ended(results), time.Since(start).Seconds(), filepath.Join(dir, "report.md"))
		for _, x := range results {
			if x.Status.Bad() {
				code = 1
			}
			failed = failed || r.name == "A" && x.Kind == agenda.Tests && (x.Status == agenda.Failed || x.Status == agenda.Crashed)
		}
	}
	return code
}

// bundleDir returns the directory of this program.
func bundleDir() string {
	exe, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(exe)
}

// choose returns the parts with these names of the runs that have them, or all where names is "".
func choose(all []agendaRun, names string) ([]agendaRun, error) {
	if names == "" {
		return all, nil
	}
	found := map[string]bool{}
	var out []agendaRun
	for _, r := range all {
		var parts []agenda.Part
		for _, n := range strings.Split(names, ",") {
			if i := slices.IndexFunc(r.parts, func(p agenda.Part) bool { return p.Name == n }); i >= 0 {
				parts, found[n] = append(parts, r.parts[i]), true
			}
		}
		if r.parts = parts; len(parts) > 0 {
			out = append(out, r)
		}
	}
	for _, n := range strings.Split(names, ",") {
		if !found[n] {
			return nil, fmt.Errorf("no part is called %q; --list prints them", n)
		}
	}
	return out, nil
}

// check does a run and rewrites its report after each part.
func (c command) check(ctx context.Context, out string, run agendaRun) ([]agenda.Result, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if dir, err := filepath.Abs(filepath.Join(c.bundle, "kernels")); err == nil && exists(dir) {
		if err := os.Setenv("VAPP_CUDA_KERNELS", dir); err != nil { // for vapp and for the tests
			return nil, err
		}
	}
	head := agenda.Head{Run: run.name + ": " + run.title, Machine: machine(), When: time.Now().UTC().Format("2006-01-02 15:04 MST"), Bundle: "vapp " + version(c.bundle)}
	r := agenda.Run{Bundle: c.bundle, Whole: run.most, Also: toolkits(), KeepGoing: c.keepGoing, Each: func(all []agenda.Result) error {
		last := all[len(all)-1]
		fmt.Printf("%-22s %-8s %6.1f s  %s\n", last.Name, last.Status, last.Seconds, last.Why)
		raw, err := json.MarshalIndent(all, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, "results.json"), raw, 0o644); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(out, "report.md"), []byte(agenda.Page(head, all)), 0o644)
	}}
	return r.Do(ctx, run.parts)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// machine describes the CPUs and the system; the part "device" describes the GPU.
func machine() string {
	return fmt.Sprintf("%d CPUs, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

func version(bundle string) string {
	b, err := os.ReadFile(filepath.Join(bundle, "VERSION"))
	if err != nil {
		return "of unknown version"
	}
	return strings.TrimSpace(string(b))
}
