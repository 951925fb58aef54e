// Command gpu measures vapp on a machine with a GPU, without a network: it runs an agenda of
// processes from a bundle (made by scripts/gpu-bundle.sh) and writes report.md and results.json. A
// part that fails, crashes or hangs does not stop the others. It must not import packages of vapp;
// it uses the binaries of the bundle. Start reading at full in parts.go.
package main

import (
	"context"
	"encoding/json"
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

func run() int {
	if len(os.Args) > 1 && os.Args[1] == "serve" { // run by a part of the agenda
		return serve(os.Args[2:])
	}
	var out, bundle, names string
	var whole time.Duration
	var small, list bool
	flag.StringVar(&out, "out", "", "the directory that report.md and results.json are written to")
	flag.StringVar(&bundle, "bundle", bundleDir(), "the directory of the bundle")
	flag.StringVar(&names, "part", "", "run these parts alone, with commas between")
	flag.DurationVar(&whole, "time", 9*time.Minute-20*time.Second, "for all parts together")
	flag.BoolVar(&small, "small", false, "what an emulated device can do in minutes: small checkpoints alone")
	flag.BoolVar(&list, "list", false, "print the agenda and stop")
	flag.Parse()
	parts := full()
	if small {
		parts = tiny()
	}
	parts, err := choose(parts, names)
	if err == nil && out == "" && !list {
		err = fmt.Errorf("give --out DIR, the directory of the report")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		return 2
	}
	if list {
		for _, p := range parts {
			fmt.Printf("%-22s %6s  %s\n", p.Name, p.Budget, strings.Join(p.Args, " "))
		}
		return 0
	}
	results, err := check(bundle, out, whole, parts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		return 1
	}
	for _, r := range results {
		if r.Status == agenda.Failed || r.Status == agenda.Crashed || r.Status == agenda.Late {
			return 1
		}
	}
	return 0
}

// bundleDir returns the directory of this program.
func bundleDir() string {
	exe, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(exe)
}

// choose returns the parts with these names, or all parts where names is "".
func choose(parts []agenda.Part, names string) ([]agenda.Part, error) {
	if names == "" {
		return parts, nil
	}
	var out []agenda.Part
	for _, n := range strings.Split(names, ",") {
		i := slices.IndexFunc(parts, func(p agenda.Part) bool { return p.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("no part is called %q; --list prints them", n)
		}
		out = append(out, parts[i])
	}
	return out, nil
}

// check runs the parts and rewrites the report after each.
func check(bundle, out string, whole time.Duration, parts []agenda.Part) ([]agenda.Result, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if dir, err := filepath.Abs(filepath.Join(bundle, "kernels")); err == nil && exists(dir) {
		if err := os.Setenv("VAPP_CUDA_KERNELS", dir); err != nil { // for vapp and for the tests
			return nil, err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	head := agenda.Head{Machine: machine(), When: time.Now().UTC().Format("2006-01-02 15:04 MST"), Bundle: "vapp " + version(bundle)}
	r := agenda.Run{Bundle: bundle, Whole: whole, Each: func(all []agenda.Result) error {
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
	return r.Do(ctx, parts)
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
