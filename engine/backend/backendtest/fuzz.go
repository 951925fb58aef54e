package backendtest

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// FuzzLaunch runs steps with wrong numbers on a backend. It may run or reject them; a correct
// step after that must give its usual result.
func FuzzLaunch(f *testing.F, o backend.Opener, s backend.Settings) {
	sub := open(f, o, s)
	r := sub.fuzzRig(f)
	pages := netPages(r, 2, upTo(r.pageCount()))
	row := backend.SampleRow{Temperature: 1, Repetition: 1.2, HistoryLen: 3, PromptLen: 1, Flags: backend.WantLogprob, NumTop: 2, NumBias: 1}
	good := []feed{
		{tokens: []int32{1, 2, 3}, pages: pages[0], sampled: []int{1, 2}, row: row},
		{tokens: []int32{4, 5, 6}, pages: pages[1], sampled: []int{0}, row: row},
	}
	r.run(good...)
	want := slices.Clone(r.dev.Step(0).Sampled[:3])
	for field := range byte(16) {
		for _, v := range []int32{-1, 7, 1 << 30} {
			f.Add(binary.LittleEndian.AppendUint32([]byte{field, 1}, uint32(v)))
		}
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		b := r.fill(0, good)
		for ; len(edits) >= 6; edits = edits[6:] {
			spoil(r.dev.Step(0), &b, edits[0], edits[1], int32(binary.LittleEndian.Uint32(edits[2:])))
		}
		err := r.dev.Launch(r.exe, b)
		if err == nil {
			err = r.dev.Wait(0)
		}
		if err != nil && strings.Contains(err.Error(), "goroutine") {
			t.Fatal(err)
		}
		clear(r.dev.Step(0).Bias)
		b = r.fill(0, good)
		check(t, r.dev.Launch(r.exe, b))
		check(t, r.dev.Wait(0))
		if got := r.dev.Step(0).Sampled[:3]; !slices.Equal(got, want) {
			t.Fatalf("the step after it samples %v, want %v", got, want)
		}
	})
}

// fuzzRig opens a small program of every op that reads the step's buffers. A row of 48
// numbers is one head's Q, K and V, and also logits.
func (s *subject) fuzzRig(f *testing.F) *rig {
	const vocab = 48
	m := &tensors{}
	table, inv := m.table("x", normal(rng(48), vocab*vocab, 1), vocab), m.literal("freqs", make([]float32, 8))
	pl := samplePlan(m, table, vocab, 8)
	pl.bucket.Seqs = 2
	pl.record = func(rec *backend.Recorder) {
		c := attentionCase{format: kernels.F32, heads: 1, kv: 1, dim: 16, cols: vocab}
		c.record(rec, []backend.WeightID{table}, inv, 0.25)
		rec.Do(backend.StoreTokens{Ids: 0})
		logits := rec.New("logits", kernels.F32, backend.PerSample, vocab)
		rec.Do(backend.Gather{X: 1, Y: logits})
		rec.Do(backend.Sample{Logits: logits})
	}
	pl.classes = []backend.KVClass{class(kernels.F32, sampleBlock, 2, 1, 16, sampleWidth)}
	pl.pages = 2 * sampleWidth
	return s.rig(f, pl)
}

// spoil writes v to one place in a step.
func spoil(s *backend.Step, b *backend.Binding, field, index byte, v int32) {
	row := &s.Sampling[int(index)%len(s.Sampling)]
	put := func(x []int32) { x[int(index)%len(x)] = v }
	switch field % 16 {
	case 0:
		put(s.Tokens)
	case 1:
		put(s.Positions)
	case 2:
		put(s.Seq)
	case 3:
		put(s.First)
	case 4:
		put(s.Pages[0])
	case 5:
		put(s.Rows)
	case 6:
		row.Seq = v
	case 7:
		row.Flags = uint32(v)
	case 8:
		row.NumTop = v
	case 9:
		row.NumBias = v
	case 10:
		row.TopK = v
	case 11:
		row.HistoryLen = v
	case 12:
		row.PromptLen = v
	case 13:
		row.Target = v
	case 14:
		s.Bias[int(index)%len(s.Bias)].Token = v
	case 15:
		n := []*int{&b.Tokens, &b.Seqs, &b.Samples, &b.Set}[index%4]
		*n = int(v)
	}
}
