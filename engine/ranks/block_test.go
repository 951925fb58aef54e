package ranks

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
)

// stepShape has every kind of buffer but Outputs.
var stepShape = backend.StepShape{Tokens: 12, Seqs: 4, Samples: 6, Vocab: 70, MaxPages: []int{5, 3}, Bias: 3, Logprobs: 2, Axes: 3, Drafts: 2, AdapterSlots: 1, Verify: 2, Items: true}

func newStep(s backend.StepShape) *backend.Step { return s.Carve(make([]byte, s.SetBytes())) }

// fill fills a set of buffers with the inputs of a launch; all else stays as it is.
func fill(r *rand.Rand, s *backend.Step, b backend.Binding) {
	t, q, l := counts(b)
	ints := func(v []int32) {
		for i := range v {
			v[i] = r.Int32N(1000) - 3
		}
	}
	for _, v := range [][]int32{s.Tokens[:t], s.Positions[:t], s.Seq[:t], s.First[:q+1], s.Rows[:l], s.MRopePositions[:3*t], s.Adapters[:t], s.Encoded[:t], s.ItemEnd[:t], s.EncodedNext[:t]} {
		ints(v)
	}
	for _, table := range s.Pages {
		for i := range table {
			table[i] = -1
		}
		w := len(table) / 4
		for i := range q {
			ints(table[i*w : i*w+r.IntN(w+1)])
		}
	}
	for i := range l {
		row := &s.Sampling[i]
		*row = backend.SampleRow{Seed: r.Uint64(), Temperature: r.Float32(), NumBias: r.Int32N(4), Flags: r.Uint32N(4)}
		if row.Flags&backend.UseGrammar != 0 {
			for k := range s.Words {
				s.Grammar[i*s.Words+k] = r.Uint32()
			}
		}
		if row.Flags&backend.UseAllowed != 0 {
			for k := range s.Words {
				s.Allowed[i*s.Words+k] = r.Uint32()
			}
		}
		for k := range row.NumBias {
			s.Bias[i*3+int(k)] = backend.BiasEntry{Token: r.Int32N(70), Value: r.Float32()}
		}
	}
}

// TestBlock: a step that was sent and read is the same, padding and masks included, and a rank without a class reads the rest.
func TestBlock(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := backend.Binding{Set: r.IntN(2), Tokens: 1 + r.IntN(6), Seqs: 1 + r.IntN(3), Samples: r.IntN(4)}
		if r.IntN(2) == 0 {
			b.Graph = backend.Graph{Kind: backend.Decode, Tokens: b.Tokens + r.IntN(6), Seqs: b.Seqs + 1, Samples: b.Samples + r.IntN(3)}
		}
		from, to := newStep(stepShape), newStep(stepShape)
		fill(r, from, b)
		for _, table := range to.Pages {
			for i := range table {
				table[i] = -1
			}
		}
		payload := appendBlock(nil, 77, from, b)
		s := ShapeOf(stepShape, []int{0, 1}, 2, backend.EncoderShape{Rows: 5})
		number, got, rest, err := s.readHeader(payload)
		if err != nil || number != 77 || got != b {
			t.Fatalf("%d, %+v, %v", number, got, err)
		}
		if err := s.read(rest, to, got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(from, to) {
			t.Fatalf("sent %+v, got %+v", from, to)
		}
		part := stepShape
		part.MaxPages = []int{3}
		stage := newStep(part)
		s = ShapeOf(part, []int{1}, 2, backend.EncoderShape{})
		if _, got, rest, err = s.readHeader(payload); err != nil {
			t.Fatal(err)
		}
		if err := s.read(rest, stage, got); err != nil {
			t.Fatal(err)
		}
		_, q, _ := counts(b)
		if !slices.Equal(stage.Pages[0][:3*q], from.Pages[1][:3*q]) || !slices.Equal(stage.Adapters, from.Adapters) {
			t.Fatal("a stage without a class reads other pages")
		}
		tokens, _, _ := counts(b)
		for i := range tokens {
			if stage.Encoded[i] != -1 || stage.EncodedNext[i] != -1 || stage.ItemEnd[i] != from.ItemEnd[i] {
				t.Fatalf("a stage without an encoder reads encoded rows %d and %d, and the item's end %d as %d", stage.Encoded[i], stage.EncodedNext[i], from.ItemEnd[i], stage.ItemEnd[i])
			}
		}
	}
}

// TestOutputs: what the last stage has sampled reaches rank 0's buffers.
func TestOutputs(t *testing.T) {
	b := backend.Binding{Tokens: 6, Seqs: 2, Samples: 4}
	from, to := newStep(stepShape), newStep(stepShape)
	for i := range 4 {
		from.Sampled[i], from.Logprob[i], from.Rank[i], from.TopIDs[2*i] = int32(i), float32(i), 1, 9
		for _, s := range []*backend.Step{from, to} {
			s.Sampling[i] = backend.SampleRow{Flags: backend.WantLogprob, NumTop: 2}
		}
	}
	from.Accepted[1], from.Drafts[3] = 2, 5
	if err := readOutputs(appendOutputs(nil, 1, from, b)[8:], to, b); err != nil || !reflect.DeepEqual(from, to) {
		t.Errorf("sent %+v, got %+v, %v", from, to, err)
	}
	var frame *FrameError
	for _, n := range []int{-1, 1} {
		payload := appendOutputs(nil, 1, from, b)[8:]
		payload = append(payload, 0)[:len(payload)+n]
		if err := readOutputs(payload, to, b); !errors.As(err, &frame) {
			t.Errorf("%+d bytes: %v", n, err)
		}
	}
}

// FuzzBlock reads any bytes as a step: an error, or buffers that the same bytes describe.
func FuzzBlock(f *testing.F) {
	b := backend.Binding{Tokens: 5, Seqs: 2, Samples: 3}
	step := newStep(stepShape)
	fill(rand.New(rand.NewPCG(1, 2)), step, b)
	f.Add(appendBlock(nil, 3, step, b))
	f.Add([]byte{})
	s := Shape{Step: stepShape, Classes: 3, Own: []int{0, -1, 1}}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, b, rest, err := s.readHeader(data)
		var frame *FrameError
		if err != nil {
			if !errors.As(err, &frame) {
				t.Fatal(err)
			}
			return
		}
		if err := s.read(rest, newStep(stepShape), b); err != nil && !errors.As(err, &frame) {
			t.Fatal(err)
		}
		if _, err := s.readMoves(data, nil); err != nil && !errors.As(err, &frame) {
			t.Fatal(err)
		}
	})
}
