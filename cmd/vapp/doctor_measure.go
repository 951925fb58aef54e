package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance/ratefile"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/measure"
	"vapp.dev/engine/speed"
	kcpu "vapp.dev/kernels/cpu"
)

// kernelVersion is the version of this binary's CPU kernels: those of their packed formats.
func kernelVersion() string {
	var b strings.Builder
	for _, f := range kcpu.SupportedFormats("generic") {
		b.WriteString(strconv.Itoa(kcpu.PanelVersion(f)))
	}
	return b.String()
}

// measuredRates returns the rates that were measured on a machine with these facts; nil and a reason where
// there are none that can be used.
func measuredRates(f backend.Facts) (*speed.Rates, string) {
	k := ratefile.KeyOf(f, kernelVersion())
	path, err := ratefile.Path(k)
	if err != nil {
		return nil, err.Error()
	}
	r, _, err := ratefile.Read(path, k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "this machine was not measured: vapp doctor --measure"
	case err != nil:
		return nil, err.Error()
	}
	return r, ""
}

// measureRates measures the rates of this machine's CPU and keeps them for vapp plan --speed.
func measureRates(ctx context.Context, c *cobra.Command) error {
	o := cpu.Opener{}
	f, err := o.Probe()
	if err != nil {
		return err
	}
	k := ratefile.KeyOf(f, kernelVersion())
	path, err := ratefile.Path(k)
	if err != nil {
		return err
	}
	log := c.ErrOrStderr()
	if err := ratefile.Writable(path); err != nil {
		return err
	}
	unusable := (*ratefile.UnusableError)(nil)
	switch _, at, err := ratefile.Read(path, k); {
	case err == nil:
		fmt.Fprintf(log, "vapp: measured before, at %s: measuring again\n", at.Format(time.DateTime))
	case errors.As(err, &unusable):
		fmt.Fprintf(log, "vapp: %v\n", err)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	base, err := measureBase(f)
	if err != nil {
		return err
	}
	reads, done, err := readMeter()
	if err != nil {
		return err
	}
	defer done()
	start := time.Now()
	show, end := partProgress(log)
	r, err := measure.Kernels(ctx, measure.Options{Opener: o, Facts: f, Base: base, Cache: lastCache(os.DirFS("/")), Reads: reads, Progress: show})
	end()
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: nothing was kept")
	} else if err != nil {
		return err
	}
	if err := ratefile.Write(path, k, r, time.Now()); err != nil {
		return err
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "%s, %s: measured in %.0f s\n", f.Device, plural(r.Threads, "thread"), time.Since(start).Seconds())
	fmt.Fprintf(w, "reads %.1f GB/s, multiplies %.0f GFLOP/s in f32, %.0f in bf16, %.0f GOP/s in int8\n", r.Read/1e9, r.F32/1e9, r.BF16/1e9, r.Int8/1e9)
	warnDisturbed(log, r)
	return ratesTable(w, r, path)
}

// warnDisturbed says that the measurement should be repeated if a kernel reads faster than memory.
func warnDisturbed(w io.Writer, r *speed.Rates) {
	for _, l := range r.Linear {
		if k := r.Kernel(l.Kernel, l.Bytes); k.Decode > 1.2*r.Read {
			fmt.Fprintf(w, "vapp: the machine was not quiet: %s reads at %.0f %% of the rate of memory; measure again on a quiet one\n", l.Kernel, 100*k.Decode/r.Read)
			return
		}
	}
}

// ratesTable prints a row for each kernel.
func ratesTable(w io.Writer, r *speed.Rates, path string) error {
	rows := [][]string{{"kernel", "decode, GB/s", "of reading", "512 rows, GOP/s"}}
	for _, l := range r.Linear {
		k := r.Kernel(l.Kernel, l.Bytes)
		rows = append(rows, []string{l.Kernel, fmt.Sprintf("%.1f", k.Decode/1e9), fmt.Sprintf("%.0f %%", 100*k.Decode/r.Read), fmt.Sprintf("%.0f", k.Prefill/1e9)})
	}
	wide := 0
	for _, row := range rows {
		wide = max(wide, len(row[0]))
	}
	for _, row := range rows {
		fmt.Fprintf(w, "%-*s %14s %12s %16s\n", wide, row[0], row[1], row[2], row[3])
	}
	_, err := fmt.Fprintf(w, "kept in %s, for vapp plan --speed\n", path)
	return err
}

// partProgress returns a function that shows which part is measured, in place on a terminal, and one that
// ends the line.
func partProgress(w io.Writer) (show func(done, of int, what string), end func()) {
	_, _, tty := terminal(w)
	if !tty {
		return func(done, of int, what string) {
			if done%8 == 0 && done < of {
				fmt.Fprintf(w, "vapp: measuring, %d of %d: %s\n", done+1, of, what)
			}
		}, func() {}
	}
	return func(done, of int, what string) { fmt.Fprintf(w, "\r\x1b[Kmeasuring, %d of %d: %s", done+1, of, what) },
		func() { fmt.Fprint(w, "\r\x1b[K") }
}

// lastCache returns the size of the machine's last-level caches in bytes, each counted once; 0 where the
// system does not say.
func lastCache(root fs.FS) int64 {
	dirs, err := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*/cache/index3")
	if err != nil {
		return 0
	}
	sizes := map[string]int64{} // by the processors that share a cache
	for _, dir := range dirs {
		sharing, err := fs.ReadFile(root, dir+"/shared_cpu_list")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0
		}
		text, err := fs.ReadFile(root, dir+"/size")
		if err != nil {
			return 0
		}
		sizes[string(sharing)] = cacheSize(strings.TrimSpace(string(text)))
	}
	sum := int64(0)
	for _, n := range sizes {
		sum += n
	}
	return sum
}

// cacheSize parses the size of a cache: "32768K"; 0 if it is none.
func cacheSize(s string) int64 {
	unit := int64(1)
	switch {
	case strings.HasSuffix(s, "K"):
		s, unit = strings.TrimSuffix(s, "K"), 1<<10
	case strings.HasSuffix(s, "M"):
		s, unit = strings.TrimSuffix(s, "M"), 1<<20
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n * unit
}
