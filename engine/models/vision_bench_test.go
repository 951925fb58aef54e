//go:build cgo && linux

package models

import (
	"os"
	"strconv"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// BenchmarkTowerCPU measures gemma-4-26B's tower with dummy weights: the machine's matrix rate, the
// share of it that linear layers of the text model reach at 2,048 rows, and for an image of 280 and
// one of 1,120 tokens the shares of the tower's linear layers, of its attention, and of the whole
// image. VAPP_BENCH_LAYERS is how many of the tower's layers run; absent: all. Times are of the
// fastest of -benchtime runs.
func BenchmarkTowerCPU(b *testing.B) {
	s := &towerBench{cfg: alterConfig(b, "google/gemma-4-26B-A4B-it", nil)}
	tensors, err := Tensors(s.cfg)
	must(b, err)
	s.ck, err = checkpoint.Dummy(s.cfg, tensors, 1)
	must(b, err)
	s.facts, err = cpu.Opener{}.Probe()
	must(b, err)
	s.layout, err = cpu.Opener{}.Layout(s.facts, backend.Settings{})
	must(b, err)
	b.Run("text", s.text)
	for _, tokens := range []int{280, 1120} {
		b.Run("image="+strconv.Itoa(tokens), func(b *testing.B) { s.image(b, tokens) })
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

type towerBench struct {
	cfg    checkpoint.Config
	ck     *checkpoint.Checkpoint
	facts  backend.Facts
	layout backend.Layout
}

// text runs three linear layers of the text model.
func (s *towerBench) text(b *testing.B) {
	const rows = 2048
	l := &loader{src: s.ck, Build: Build{Shard: backend.Whole, Pipe: backend.Whole}}
	g, err := readGemmaText(s.cfg)
	must(b, err)
	w := newGemmaLayer(s.cfg, g, l, 0)
	must(b, l.err)
	p := &backend.Program{Name: "text", Bucket: backend.Bucket{Tokens: rows, Seqs: 1, Samples: rows}, Weights: l.specs, Vocab: s.cfg.VocabSize, Shard: backend.Whole}
	r := backend.Record(p)
	x, at := r.New("x", kernels.F32, backend.PerToken, s.cfg.HiddenSize), [2]backend.Value{}
	for i := range at {
		at[i] = r.New("at", kernels.I32, backend.PerToken, 1)
	}
	r.Do(backend.Patches{Pixels: x, Across: at[0], Down: at[1], Scale: 1})
	linear := func(x backend.Value, w backend.WeightID) backend.Value {
		y := r.New("y", kernels.F32, backend.PerToken, l.specs[w].Rows)
		r.Do(backend.Linear{X: x, W: w, Bias: backend.NoWeight, Y: y})
		return y
	}
	r.Free(linear(x, w.qkv))
	up := linear(x, w.gateUp)
	act := r.New("act", kernels.F32, backend.PerToken, w.width)
	r.Do(backend.GLU{X: up, Y: act, Activation: backend.Activation{Act: backend.GELUTanh}})
	out := r.New("out", kernels.F32, backend.PerSample, s.cfg.HiddenSize)
	y := linear(act, w.down)
	r.Do(backend.Join{X: y, Y: out})
	r.Do(backend.EncoderOutput{X: out})
	r.Free(x, at[0], at[1], up, act, y, out)
	p, err = r.Program()
	must(b, err)
	s.measure(b, p, rows, 64)
}

// image runs the tower.
func (s *towerBench) image(b *testing.B, tokens int) {
	l := &loader{src: s.ck, Build: Build{Shard: backend.Whole, Pipe: backend.Whole, Vision: true}}
	g, err := newGemmaTower(s.cfg, l)
	must(b, err)
	must(b, l.err)
	if n, err := strconv.Atoi(os.Getenv("VAPP_BENCH_LAYERS")); err == nil {
		g.layers = g.layers[:n]
	}
	m := &gemma{vocabulary: vocabulary{Build: l.Build, size: s.cfg.VocabSize, hidden: s.cfg.HiddenSize}, cfg: s.cfg, vision: g, weights: l.specs}
	n, wide := tokens*g.pool*g.pool, map[int]int{280: 60, 1120: 120}[tokens]
	p, err := m.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: n, Seqs: 1}})
	must(b, err)
	b.Logf("%d layers, %d tokens, %d patches", len(g.layers), tokens, n)
	s.measure(b, p, tokens, wide)
}

// measure runs a program on an item in a grid so many patches wide, beside the machine's rates.
func (s *towerBench) measure(b *testing.B, p *backend.Program, rows, wide int) {
	top, err := cpu.MeasureLimits(0, 900*time.Millisecond)
	must(b, err)
	res, err := dry.Run(s.layout, p.Weights, []*backend.Program{p}, backend.StepShape{Tokens: 1, Seqs: 1, Samples: 1, Vocab: 1}, 0)
	must(b, err)
	res.AddEncoder(s.layout, backend.ShapeOf(p, rows))
	dev, err := cpu.Opener{}.Open(s.facts, backend.Settings{TimeOps: true}, res)
	must(b, err)
	defer dev.Close()
	flop, read := products(p)
	for i, w := range res.Weights {
		if w.Use&backend.Multiply == 0 || read[backend.WeightID(i)] {
			must(b, dev.Pack(i, s.ck))
		}
	}
	exe, err := dev.Compile(p)
	must(b, err)
	enc, n := dev.(backend.Encoder), p.Bucket.Tokens
	in := enc.Item()
	for t := range n {
		in.Across[t], in.Down[t] = int32(t%wide), int32(t/wide)
	}
	for b := range in.Colours {
		in.Colours[b] = float32(b%13) / 13
	}
	for i := range in.Pixels {
		in.Pixels[i] = byte(i * 7 % 13)
	}
	least, before := map[string]time.Duration{}, map[string]time.Duration{}
	took := func(op string, d time.Duration) {
		if old, ok := least[op]; !ok || d < old {
			least[op] = d
		}
	}
	for b.Loop() {
		start := time.Now()
		must(b, enc.Encode(exe, backend.EncodeBinding{Patches: n, Rows: rows}))
		must(b, enc.WaitItem())
		took("all", time.Since(start))
		_, ops := dev.(backend.OpTimer).OpTimes()
		for _, o := range ops {
			took(o.Op, o.Wall-before[o.Op])
			before[o.Op] = o.Wall
		}
	}
	var planned, allocated int64
	for a, n := range dev.Usage() {
		planned, allocated = planned+res.Arenas[a], allocated+n
	}
	b.Logf("variant %s, %d threads: %.0f GFLOP/s in float32, %.0f in bf16", top.Variant, top.Threads, top.F32/1e9, top.BF16/1e9)
	b.Logf("planned %d bytes, allocated %d: the same %t; scratch %d", planned, allocated, dev.Usage() == res.Arenas, res.Arenas[backend.Scratch])
	for _, o := range []string{"linear", "attention", "all"} {
		work := flop[o]
		if o == "all" {
			work = flop["linear"] + flop["attention"]
		}
		if d := least[o]; d > 0 && work > 0 {
			share := work / d.Seconds() / top.BF16
			b.ReportMetric(100*share, o+"-%matrix")
			b.Logf("%-9s %8.3f s, %7.0f GFLOP, %.2f of the matrix rate", o, d.Seconds(), work/1e9, share)
			delete(least, o)
		}
	}
	for o, d := range least {
		b.Logf("%-9s %8.3f s", o, d.Seconds())
	}
}

// products returns the operations of a program's products by op, and the weights that it multiplies by.
func products(p *backend.Program) (flop map[string]float64, read map[backend.WeightID]bool) {
	flop, read = map[string]float64{}, map[backend.WeightID]bool{}
	for _, op := range p.Ops {
		switch o := op.(type) {
		case backend.Linear:
			w := p.Weights[o.W]
			flop["linear"] += 2 * float64(w.Rows) * float64(w.Cols) * float64(p.Rows(p.Values[o.X].Rows))
			read[o.W] = true
		case backend.Attention:
			n := float64(p.Rows(p.Values[o.Q].Rows))
			flop["attention"] += 4 * n * n * float64(o.Heads*o.HeadDim)
		}
	}
	return flop, read
}
