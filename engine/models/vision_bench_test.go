//go:build cgo && linux

package models

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/checkpoint"
)

// BenchmarkGemmaTowerCPU encodes an image of 280 tokens with a quarter of the layers of
// gemma-4-26B's tower (dummy weights), and reports the rate of its products.
func BenchmarkGemmaTowerCPU(b *testing.B) {
	const tokens = 280
	cfg := alterConfig(b, "google/gemma-4-26B-A4B-it", nil)
	tensors, err := Tensors(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ck, err := checkpoint.Dummy(cfg, tensors, 1)
	if err != nil {
		b.Fatal(err)
	}
	l := &loader{src: ck, Build: Build{Shard: backend.Whole, Pipe: backend.Whole, Vision: true}}
	g, err := newGemmaTower(cfg, l)
	if err != nil || l.err != nil {
		b.Fatal(err, l.err)
	}
	all := len(g.layers)
	g.layers = g.layers[:max(1, all/4)]
	m := &gemma{vocabulary: vocabulary{Build: l.Build, size: cfg.VocabSize, hidden: cfg.HiddenSize}, cfg: cfg, vision: g, weights: l.specs}
	n := tokens * g.pool * g.pool
	p, err := m.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: n, Seqs: 1}})
	if err != nil {
		b.Fatal(err)
	}
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		b.Fatal(err)
	}
	layout, err := cpu.Opener{}.Layout(facts, backend.Settings{})
	if err != nil {
		b.Fatal(err)
	}
	res, err := dry.Run(layout, p.Weights, []*backend.Program{p}, backend.StepShape{Tokens: 1, Seqs: 1, Samples: 1, Vocab: 1}, 0)
	if err != nil {
		b.Fatal(err)
	}
	res.AddEncoder(layout, backend.ShapeOf(p, tokens))
	dev, err := cpu.Opener{}.Open(facts, backend.Settings{TimeOps: true}, res)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	flop := 0.0
	read := map[backend.WeightID]bool{}
	for _, op := range p.Ops {
		if o, ok := op.(backend.Linear); ok {
			w := p.Weights[o.W]
			flop += 2 * float64(w.Rows) * float64(w.Cols) * float64(p.Rows(p.Values[o.X].Rows))
			read[o.W] = true
		}
	}
	for i := range res.Weights {
		if w := res.Weights[i]; w.Use&backend.Multiply == 0 || read[backend.WeightID(i)] {
			if err := dev.Pack(i, ck); err != nil {
				b.Fatal(err)
			}
		}
	}
	exe, err := dev.Compile(p)
	if err != nil {
		b.Fatal(err)
	}
	enc := dev.(backend.Encoder)
	in, wide := enc.Item(), 60
	for t := range n {
		in.Across[t], in.Down[t] = int32(t%wide), int32(t/wide)
	}
	b.Logf("%d of %d layers, %d patches, %.0f GFLOP in products", len(g.layers), all, n, flop/1e9)
	for b.Loop() {
		if err := enc.Encode(exe, backend.EncodeBinding{Patches: n, Rows: tokens}); err != nil {
			b.Fatal(err)
		}
		if err := enc.WaitItem(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(flop*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	_, ops := dev.(backend.OpTimer).OpTimes()
	for _, o := range ops[:min(4, len(ops))] {
		b.Logf("%s: %v in %d runs", o.Op, o.Wall, o.Runs)
	}
}
