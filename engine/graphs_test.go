package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
)

// graphing is ref with a device that records its captures. It runs a replayed step like any other,
// after it has checked that padding rows belong to no sequence.
type graphing struct {
	ref.Opener
	seen *replays
}

type replays struct {
	mu       sync.Mutex
	captured map[string]bool
	wrong    []string
}

func (g graphing) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	d, err := g.Opener.Open(f, s, r)
	return graphDevice{d, g.seen}, err
}

type graphDevice struct {
	backend.Device
	seen *replays
}

func (d graphDevice) GraphBytes() int64 { return int64(len(d.seen.captured)) }

func (d graphDevice) Capture(_ backend.Executable, set int, g backend.Graph) error {
	d.seen.captured[fmt.Sprint(set, g)] = true
	return nil
}

func (d graphDevice) Launch(e backend.Executable, b backend.Binding) error {
	if g := b.Graph; g.Kind != backend.Eager {
		d.seen.mu.Lock()
		s := d.Step(b.Set)
		if !d.seen.captured[fmt.Sprint(b.Set, g)] {
			d.seen.wrong = append(d.seen.wrong, fmt.Sprintf("%v was not captured", g))
		}
		for t := b.Tokens; t < g.Tokens; t++ {
			if s.Seq[t] != -1 || s.Tokens[t] != 0 {
				d.seen.wrong = append(d.seen.wrong, fmt.Sprintf("row %d of %v is token %d of sequence %d", t, g, s.Tokens[t], s.Seq[t]))
			}
		}
		for q := b.Seqs; q < g.Seqs; q++ {
			if s.First[q+1] != int32(b.Tokens) || s.Pages[0][q*len(s.Pages[0])/(len(s.First)-1)] != -1 {
				d.seen.wrong = append(d.seen.wrong, fmt.Sprintf("sequence %d of %v has rows or pages", q, g))
			}
		}
		d.seen.mu.Unlock()
	}
	b.Graph = backend.Graph{}
	return d.Device.Launch(e, b)
}

// TestGraphs: steps run by the configured mode, the first step of each reason to run without a graph
// is reported once, captures report progress, and tokens are those of an engine without graphs.
func TestGraphs(t *testing.T) {
	plain := newToy(t)
	want := runAll(t, plain.open(t), 5, true)
	for mode, runs := range map[string][]string{
		"piecewise":          {"NONE too_many_tokens", "PIECEWISE "},
		"full":               {"FULL ", "NONE too_many_tokens"},
		"full_decode_only":   {"FULL ", "NONE not_decoding"},
		"full_and_piecewise": {"FULL ", "NONE too_many_tokens", "PIECEWISE "},
	} {
		y, seen := newToy(t), &replays{captured: map[string]bool{}}
		y.on, y.opts.Backend.Graphs = graphing{seen: seen}, backend.Graphs{Mode: mode, Sizes: []int{1, 2, 4, 8, 16}}
		ran, reported := map[string]int{}, map[string]int{}
		arrived := make(chan struct{}) // closed after all requests: steps then have prompts and decoding rows
		y.hooks.Step = func(s engine.StepStats) {
			<-arrived
			ran[s.Graph+" "+s.NoGraph]++
		}
		y.hooks.NoGraph = func(reason string, tokens int) {
			if reported[reason]++; tokens < 1 {
				t.Errorf("%s: %d tokens", reason, tokens)
			}
		}
		e := y.open(t)
		if got := runAll(t, e, 5, true, func() { close(arrived) }); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: other tokens", mode)
		}
		if n, ok := e.GraphBytes(); !ok || n != int64(len(seen.captured)) {
			t.Errorf("%s: %d bytes of graphs, %v", mode, n, ok)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if have := slices.Sorted(maps.Keys(ran)); !slices.Equal(have, runs) {
			t.Errorf("%s: steps ran by %v, want %v", mode, ran, runs)
		}
		for reason, n := range reported {
			if n != 1 {
				t.Errorf("%s: %s was reported %d times", mode, reason, n)
			}
		}
		if len(reported) != 1 || len(seen.wrong) > 0 {
			t.Errorf("%s: reported %v; %v", mode, reported, seen.wrong)
		}
	}
}

// TestGraphsRefused: a backend that captures no graphs returns an error and does not run without them.
func TestGraphsRefused(t *testing.T) {
	y := newToy(t)
	m, err := engine.Inspect(engine.Source{Path: y.dir, Name: "toy", Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	y.opts.Backend.Graphs = backend.Graphs{Mode: "full", Sizes: []int{1}}
	y.opts.KVBytes = 16 * y.account(t, m).KV.SlabBytes
	var said []engine.Progress
	_, err = engine.Open(context.Background(), engine.Config{
		Options: y.opts, Model: m, Opener: y.opener(), Facts: y.facts(t), Account: y.account(t, m), Progress: func(p engine.Progress) { said = append(said, p) },
	})
	if err == nil || err.Error() != "capturing graphs: unsupported: the device has none" {
		t.Error(err)
	}
	y.on = graphing{seen: &replays{captured: map[string]bool{}}}
	e, err := engine.Open(context.Background(), engine.Config{
		Options: y.opts, Model: m, Opener: y.opener(), Facts: y.facts(t), Account: y.account(t, m), Progress: func(p engine.Progress) { said = append(said, p) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if last := said[len(said)-1]; last != (engine.Progress{Done: 1, Total: 1, Capturing: true}) {
		t.Errorf("the last progress is %+v", last)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
