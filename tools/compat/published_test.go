package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
)

// published is a run whose log is in a public thread: its address, version and figures. None was used
// to fit a constant.
type published struct {
	Source, Version, Run, Model string
	Release                     Release
	Device                      Device
	Request                     Request
	// Blocks are those that the logged concurrency has where the thread lacks Available.
	Blocks                                 int64
	Available, Tokens, Concurrency, Padded string
	Weights                                string
	Block                                  int64
	// Apart is the reason why a figure differs, "" where each is met.
	Apart, Note string
}

func publishedRuns(t testing.TB) []published {
	t.Helper()
	data, err := os.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []published
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (p published) inputs(t testing.TB) Inputs {
	i := Inputs{Release: p.Release, Device: p.Device, Request: p.Request}
	i.Device.Name, i.Device.TotalBytes = "x", 1<<40
	if !strings.HasSuffix(p.Model, ".json") {
		i.Config = config(t, p.Model)
		return i
	}
	data, err := os.ReadFile(p.Model)
	if err != nil {
		t.Fatal(err)
	}
	if i.Config, err = checkpoint.ParseConfig(p.Model, data); err != nil {
		t.Fatal(err)
	}
	return i
}

// outcome returns the run with the logged memory, or the logged blocks. A GiB figure has two digits:
// of the blocks that it allows, those that give the logged tokens are taken, else those of the figure itself.
func (p published) outcome(t testing.TB) *outcome {
	i := p.inputs(t)
	i.Request.KVBytes = 1 << 39
	o := must(t, i)
	with := func(bytes int64) *outcome {
		i.Request.KVBytes = bytes
		return must(t, i)
	}
	switch {
	case p.Blocks > 0:
		return with(p.Blocks * o.cache.slabs[0])
	case p.Available == "":
		return o
	}
	mid := number(p.Available)
	for b := bytesOf(mid-0.005) / o.cache.slab(); b <= bytesOf(mid+0.005)/o.cache.slab(); b++ {
		if at := with(b * o.cache.slab()); groupDigits(at.tokens()) == p.Tokens {
			return at
		}
	}
	return with(bytesOf(mid))
}

// figure is a logged and a computed figure.
type figure struct{ name, logged, computed string }

func (p published) figures(o *outcome) []figure {
	var out []figure
	add := func(name, logged, computed string) {
		if logged != "" {
			out = append(out, figure{name, logged, computed})
		}
	}
	w := gib(o.stages[0].total)
	_, digits, _ := strings.Cut(p.Weights, ".")
	add("Model loading, GiB", p.Weights, fmt.Sprintf("%.*f", len(digits), w))
	add("GPU KV cache size, tokens", p.Tokens, groupDigits(o.tokens()))
	add("maximum concurrency", p.Concurrency, fmt.Sprintf("%.2fx", o.concurrency(o.length)))
	add("mamba page padding", p.Padded, fmt.Sprintf("%.2f%%", o.cache.padded))
	if p.Block > 0 {
		add("attention block size, tokens", groupDigits(p.Block), groupDigits(o.cache.block))
	}
	return out
}

func (f figure) difference() string {
	d := number(f.computed)/number(f.logged) - 1
	if f.computed == f.logged {
		return "0"
	}
	return fmt.Sprintf("%+.2f %%", 100*d)
}

// TestPublished compares published figures: caches are met exactly, weights within 1 %, unless the
// run says why not.
func TestPublished(t *testing.T) {
	for _, p := range publishedRuns(t) {
		apart := false
		for _, f := range p.figures(p.outcome(t)) {
			d := number(f.computed)/number(f.logged) - 1
			weights := strings.HasPrefix(f.name, "Model loading")
			met := f.computed == f.logged || weights && d > -0.01 && d < 0.01
			apart = apart || !met
			if !met && p.Apart == "" || d < -0.06 || d > 0.06 {
				t.Errorf("%s: %s: logged %s, computed %s, %s", p.Run, f.name, f.logged, f.computed, f.difference())
			}
		}
		if p.Apart != "" && !apart {
			t.Errorf("%s: every figure is met; why is it apart?", p.Run)
		}
	}
}

func documentPublished(t testing.TB, b *strings.Builder) {
	b.WriteString("\n## Published logs\n\nFigures of logs in public threads, each with its address and version. **None of them was used to fit a constant**: these are the errors " +
		"of the arithmetic on runs that it has not seen. Where a thread has the memory of the cache, that is given, and the tokens and the concurrency are computed from it; where it lacks " +
		"that, the number of blocks is the one that the logged concurrency has.\n\n" +
		"| run | version | computed as | figure | logged | computed | difference |\n|---|---|---|---|---|---|---|\n")
	for _, p := range publishedRuns(t) {
		for _, f := range p.figures(p.outcome(t)) {
			fmt.Fprintf(b, "| [%s](%s) | %s | %s | %s | %s | %s | %s |\n", p.Run, p.Source, p.Version, p.Release, f.name, f.logged, f.computed, f.difference())
		}
	}
	b.WriteString("\n")
	for _, p := range publishedRuns(t) {
		switch {
		case p.Apart != "":
			fmt.Fprintf(b, "- %s (%s): differs because %s.\n", p.Run, p.Version, p.Apart)
		case p.Note != "":
			fmt.Fprintf(b, "- %s: %s.\n", p.Run, p.Note)
		}
	}
}
