// Command peer compares vapp with llama.cpp and PyTorch on the same files and writes the machine's
// page in docs/performance and the index docs/performance.md; scripts/bench-peer.sh prepares its input and runs it. It must not
// import packages of vapp other than figures: it runs binaries and parses their output.
// Start reading at bench.run in this file, then bench.measure in measure.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"vapp.dev/tests/peer/figures"
)

// bench holds the paths and settings of a comparison.
type bench struct {
	dir    string // models, llama.cpp, results
	vapp   string // the binary
	docs   string // the folder of performance.md and performance/<cpu>.md
	torch  string // a Python with PyTorch and transformers; empty: none
	rounds int
	time   time.Duration // skip parts that would end later; 0: skip none
}

func main() {
	var b bench
	part := flag.String("part", "", "measure only these parts, separated by commas: "+strings.Join(figures.Names(), ", ")+"; report: none")
	flag.StringVar(&b.dir, "dir", ".bench", "folder of models, llama.cpp and results")
	flag.StringVar(&b.vapp, "vapp", "bin/vapp", "the binary")
	flag.StringVar(&b.docs, "docs", "docs", "the folder of performance.md and the machines' pages")
	flag.StringVar(&b.torch, "torch", "", "a Python with PyTorch and transformers")
	flag.IntVar(&b.rounds, "rounds", 1, "rounds of A B A B; long measurements run once per round")
	flag.DurationVar(&b.time, "time", 0, "skip parts that are expected to end later; 0: skip none")
	check := flag.Bool("check", false, "only check the names of -part")
	flag.Parse()
	if _, err := chosen(*part); err != nil || *check {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench-peer:", err)
			os.Exit(2)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, *part); err != nil {
		fmt.Fprintln(os.Stderr, "bench-peer:", err)
		stop()
		os.Exit(1)
	}
}

func (b bench) run(ctx context.Context, part string) error {
	parts, err := chosen(part)
	if err != nil {
		return err
	}
	if b.rounds < 1 {
		return fmt.Errorf("-rounds %d: at least one", b.rounds)
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	if b.vapp, err = filepath.Abs(b.vapp); err != nil {
		return err
	}
	for _, d := range []string{"results", "profiles"} {
		if err := os.MkdirAll(filepath.Join(b.dir, d), 0o755); err != nil {
			return err
		}
	}
	estimate, err := b.estimate(parts)
	if err != nil {
		return err
	}
	estimate.print(os.Stderr, parts)
	var failed []error
	begin := time.Now()
	for _, name := range parts {
		if left := b.time - time.Since(begin); b.time > 0 && estimate[name] > left {
			failed = append(failed, fmt.Errorf("%s: skipped: it takes about %.0f s, and %.0f s are left", name, estimate[name].Seconds(), left.Seconds()))
			continue
		}
		if err := b.part(ctx, name); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Fprintf(os.Stderr, "bench-peer: %s: %v\n", name, err)
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
		// Write after each part, so that results are kept if the next one is interrupted.
		if err := b.write(ctx); err != nil {
			return err
		}
	}
	if len(parts) == 0 {
		failed = append(failed, b.write(ctx))
	}
	return errors.Join(failed...)
}

// chosen returns the parts that -part names.
func chosen(part string) ([]string, error) {
	all := figures.Names()
	switch part {
	case "":
		return all, nil
	case "report":
		return nil, nil
	}
	var out []string
	for name := range strings.SplitSeq(part, ",") {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("unknown part %q; parts are %s and report", name, strings.Join(all, ", "))
		}
		out = append(out, name)
	}
	return out, nil
}

// part measures a part and saves it.
func (b bench) part(ctx context.Context, name string) error {
	begin := time.Now()
	p, err := b.measure(ctx, name)
	if ctx.Err() != nil || len(p.Runs) == 0 {
		return errors.Join(err, ctx.Err())
	}
	p.Took, p.Rounds = time.Since(begin).Seconds(), b.rounds
	fmt.Fprintf(os.Stderr, "bench-peer: %s measured in %.0f s\n", name, time.Since(begin).Seconds())
	return errors.Join(err, p.Save(filepath.Join(b.dir, "results")))
}

// write replaces the machine's page, except for the notes in it that are written by hand, and
// the index of all pages.
func (b bench) write(ctx context.Context) error {
	parts, err := figures.Load(filepath.Join(b.dir, "results"), figures.Names())
	if err != nil {
		return err
	}
	m := b.machine(ctx)
	page := filepath.Join(b.docs, "performance", m.File)
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(page, []byte(figures.Report(parts, m, figures.Notes(string(old)))), 0o644); err != nil {
		return err
	}
	return writeIndex(b.docs)
}

// writeIndex replaces performance.md in a folder by the index of the pages in performance/.
func writeIndex(docs string) error {
	files, err := filepath.Glob(filepath.Join(docs, "performance", "*.md"))
	if err != nil {
		return err
	}
	pages := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		pages[filepath.Base(f)] = string(text)
	}
	index, err := figures.Index(pages)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "performance.md"), []byte(index), 0o644)
}
