package models

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
)

// publishedModel returns a catalogued model for one rank, with dummy weights.
func publishedModel(t testing.TB, name string, b Build) Model {
	t.Helper()
	m, err := buildModel(alterConfig(t, name, nil), b)
	if err != nil {
		t.Fatalf("%s %+v: %v", name, b, err)
	}
	return m
}

// passes returns the programs of a model: a step of 2048 tokens and, with a tower, the tower's pass
// over an item.
func passes(t testing.TB, m Model) []*backend.Program {
	t.Helper()
	step, err := recordStep(m, kernels.BF16, bucket)
	if err != nil {
		t.Fatal(err)
	}
	list := []*backend.Program{step}
	if e, ok := m.(Encoder); ok && e.Patches() > 0 {
		p, err := e.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: e.Patches(), Seqs: 1, Samples: 1}})
		if err == nil {
			err = p.Check()
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// TestHybrids records the published configs whole and in parts, as stored and in 8 bits, and plans
// their weights and workspace on all layouts.
func TestHybrids(t *testing.T) {
	for _, name := range []string{"gpt-oss-20b", "gemma-4-26b-a4b", "gemma-4-31b"} {
		for _, world := range []int{1, 2, 4} {
			for _, pipe := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/tp%d-pp%d", name, world, pipe), func(t *testing.T) {
					oss := name == "gpt-oss-20b"
					b := Build{Shard: backend.Shard{Rank: world - 1, World: world}, Pipe: backend.Shard{Rank: pipe - 1, World: pipe}, Vision: !oss, Rebuild: !oss && pipe == 1}
					checkBuilt(t, name, b)
					if !oss {
						b.Quantize = kernels.F8E4M3
						checkBuilt(t, name, b)
					}
				})
			}
		}
	}
}

func checkBuilt(t *testing.T, name string, b Build) {
	m := publishedModel(t, name, b)
	list := passes(t, m)
	for on, l := range layouts(t) {
		for _, p := range list {
			if _, err := dryRun(l, m, p); err != nil {
				t.Errorf("%s: %v", on, err)
			}
			if err := l.Runs(m.Weights(), p); err != nil && !errors.Is(err, backend.ErrUnsupported) {
				t.Errorf("%s: %v", on, err)
			}
		}
	}
}

// TestPrograms compares listings of the recorded programs with testdata/programs.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		file, model string
		build       Build
	}{
		{"gpt-oss-20b", "gpt-oss-20b", Build{}},
		{"gpt-oss-20b-tp4", "gpt-oss-20b", Build{Shard: backend.Shard{Rank: 3, World: 4}}},
		{"gemma-4-26b-a4b", "gemma-4-26b-a4b", Build{Vision: true}},
		{"gemma-4-26b-a4b-fp8-rebuild", "gemma-4-26b-a4b", Build{Quantize: kernels.F8E4M3, Rebuild: true}},
		{"gemma-4-31b-tp2", "gemma-4-31b", Build{Shard: backend.Shard{Rank: 1, World: 2}}},
	} {
		t.Run(c.file, func(t *testing.T) {
			m := publishedModel(t, c.model, c.build)
			got := listing(m, passes(t, m))
			path := filepath.Join("testdata", "programs", c.file+".txt")
			goldentest.Compare(t, path, got)
		})
	}
}

// listing returns a model's weights and programs as a page of text.
func listing(m Model, programs []*backend.Program) string {
	var b strings.Builder
	groups, bytes := map[string]int{}, map[string]int64{}
	for _, w := range m.Weights() {
		groups[w.Group]++
		f := w.Stored()
		if w.Use&backend.Vector != 0 {
			f = kernels.F32
		}
		if f != kernels.Invalid {
			bytes[w.Group] += f.Bytes(w.Elems()) + 4*w.Scales()
		}
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "weights %-10s %5d of %14d bytes\n", g, groups[g], bytes[g])
	}
	for _, c := range m.Classes(16, kernels.BF16) {
		fmt.Fprintf(&b, "class %s: %d layers, %d heads of %d, keys of %d, window %d, tokens %t: a page of %d tokens is %d bytes, a layer %d\n",
			c.Name, c.Layers, c.KVHeads, c.HeadDim, c.KeyDim, c.Window, c.Plane, c.BlockSize, c.PageBytes(), c.KOffset(1))
	}
	for _, p := range programs {
		fmt.Fprintf(&b, "program %s: %d ops, scratch %d bytes of %+v\n", p.Name, len(p.Ops), p.Scratch, p.Bucket)
		ops := map[string]int{}
		for _, op := range p.Ops {
			ops[backend.OpName(op)]++
			if s := backend.RequiredFeature(op); s != "" && s != backend.OpName(op) {
				ops[s]++
			}
		}
		for _, o := range slices.Sorted(maps.Keys(ops)) {
			fmt.Fprintf(&b, "  %5d %s\n", ops[o], o)
		}
	}
	return b.String()
}
