//go:build cgo && linux

package cpu_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

const smolLM2 = "../../../models/SmolLM2-135M-Instruct.Q4_1.gguf"

// loaded is the default model on a device.
type loaded struct {
	dev backend.Device
	exe backend.Executable
	res backend.Reservation
}

// load opens the model for steps of up to tokens tokens of up to seqs sequences
// of up to length tokens each.
func load(b testing.TB, s backend.Settings, tokens, seqs, length int) *loaded {
	b.Helper()
	if _, err := os.Stat(smolLM2); err != nil {
		b.Skipf("not run: %s is absent, make model fetches it", smolLM2)
	}
	ck, err := checkpoint.Open(smolLM2)
	must(b, err)
	b.Cleanup(func() { ck.Close() })
	m, err := models.New(ck, models.Build{})
	must(b, err)
	o := cpu.Opener{}
	facts, err := o.Probe()
	must(b, err)
	layout, err := o.Layout(facts, s)
	must(b, err)
	classes := m.Classes(16, kernels.F16)
	c := &classes[0]
	c.MaxPages, c.PagesPerSlab = (length+15)/16, 1
	c.SlabBytes = c.PageBytes()
	p, err := m.Record(&backend.Program{Name: "bench", Bucket: backend.Bucket{Tokens: tokens, Seqs: seqs, Samples: seqs}, Classes: classes})
	must(b, err)
	shape := backend.StepShape{Tokens: tokens, Seqs: seqs, Samples: seqs, Vocab: m.Vocab(), MaxPages: []int{c.MaxPages}, Bias: 1, Logprobs: 1}
	l := &loaded{}
	l.res, err = dry.Run(layout, m.Weights(), []*backend.Program{p}, shape, int64(seqs*c.MaxPages)*c.SlabBytes)
	must(b, err)
	l.dev, err = o.Open(facts, s, l.res)
	must(b, err)
	b.Cleanup(func() { l.dev.Close() })
	for i := range l.res.Weights {
		must(b, l.dev.Pack(i, ck))
	}
	l.exe, err = l.dev.Compile(p)
	must(b, err)
	for set := range 2 {
		for s := range seqs {
			for i := range c.MaxPages {
				l.dev.Step(set).Pages[0][s*c.MaxPages+i] = int32(s*c.MaxPages + i)
			}
		}
	}
	return l
}

// fill writes a step of seqs sequences, each with n tokens from position at on. Every last
// row is sampled greedily.
func (l *loaded) fill(set, seqs, n, at int) backend.Binding {
	s := l.dev.Step(set)
	for q := range seqs {
		for i := range n {
			r := q*n + i
			s.Tokens[r], s.Positions[r], s.Seq[r] = int32((q*31+at+i)%1000+5), int32(at+i), int32(q)
		}
		s.First[q], s.First[q+1] = int32(q*n), int32(q*n+n)
		s.Rows[q] = int32(q*n + n - 1)
		s.Sampling[q] = backend.SampleRow{TopP: 1, Repetition: 1, Seq: int32(q), HistoryLen: int32(at + n)}
	}
	return backend.Binding{Set: set, Tokens: seqs * n, Seqs: seqs, Samples: seqs}
}

// measure runs steps of n tokens and reports the mean and the best rate, and the rate by
// processor time of a pool thread. On a machine with other load, the last is nearest to what
// the code can do.
func (l *loaded) measure(b *testing.B, bind backend.Binding, n int) {
	pool := l.dev.(interface {
		Share() (worked, rested time.Duration)
	})
	best := time.Hour
	l.run(b, bind)
	before, _ := pool.Share()
	for b.Loop() {
		start := time.Now()
		l.run(b, bind)
		best = min(best, time.Since(start))
	}
	after, _ := pool.Share()
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tok/s")
	b.ReportMetric(float64(n)/best.Seconds(), "best-tok/s")
	b.ReportMetric(float64(n*b.N)/(after-before).Seconds(), "thread-tok/s")
}

func (l *loaded) run(b testing.TB, bind backend.Binding) {
	if err := l.dev.Launch(l.exe, bind); err != nil {
		b.Fatal(err)
	}
	if err := l.dev.Wait(bind.Set); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkModel runs steps of SmolLM2: a decode step of several sequences at several
// lengths, and the prefill of a prompt.
func BenchmarkModel(b *testing.B) {
	for threads := 1; threads <= 2; threads++ {
		s := backend.Settings{Threads: threads}
		for _, d := range [][2]int{{1, 64}, {1, 1024}, {16, 128}, {64, 128}} {
			b.Run(fmt.Sprintf("threads=%d/decode/seqs=%d/at=%d", threads, d[0], d[1]), func(b *testing.B) {
				l := load(b, s, d[0], d[0], d[1]+1)
				l.measure(b, l.fill(0, d[0], 1, d[1]), d[0])
			})
		}
		for _, n := range []int{128, 512} {
			b.Run(fmt.Sprintf("threads=%d/prefill/tokens=%d", threads, n), func(b *testing.B) {
				l := load(b, s, n, 1, n)
				l.measure(b, l.fill(0, 1, n, 0), n)
			})
		}
	}
}
