package models

import (
	"errors"
	"math"
	"slices"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

// tower is a recorded tower: its program, its weights, and a recorded image.
type tower struct {
	p    *backend.Program
	ck   *checkpoint.Checkpoint
	item enginetest.GoldenItem
}

// recordedTowers returns the towers of testdata in float32, as they were recorded, with programs for more
// patches than the image has.
func recordedTowers(t *testing.T) map[string]tower {
	t.Helper()
	out := map[string]tower{}
	for _, name := range []string{"tiny-gemma4-tower", "tiny-gemma4-moe-tower", "tiny-qwen35-tower"} {
		g, err := enginetest.ReadGolden("testdata/media/" + name + ".first.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		ck := openTestdata(t, name)
		// towers keep K and V in the activation format
		b := Build{Shard: backend.Whole, Pipe: backend.Whole, Vision: true, Dtype: kernels.F32}
		m, err := New(ck, b)
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.(Encoder).RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: 4 * g.Items[0].Patches(), Seqs: 1}})
		if err != nil {
			t.Fatal(err)
		}
		out[name] = tower{p, ck, g.Items[0]}
	}
	return out
}

// TestTowersRef runs the recorded towers on ref and compares the encoded rows with those of
// transformers.
func TestTowersRef(t *testing.T) { encodeTowers(t, ref.Opener{}, backend.Settings{}, 2e-5) }

// encodeTowers encodes the recorded images through a Device, at two places of the cache, and compares
// the rows with the recorded ones: the largest difference is at most that share of the largest number.
func encodeTowers(t *testing.T, o backend.Opener, s backend.Settings, most float64) {
	for name, w := range recordedTowers(t) {
		t.Run(name, func(t *testing.T) {
			facts, err := o.Probe()
			if err != nil {
				t.Fatal(err)
			}
			l, err := o.Layout(facts, s)
			if err != nil {
				t.Fatal(err)
			}
			res, err := dry.Run(l, w.p.Weights, []*backend.Program{w.p}, backend.StepShape{Tokens: 1, Seqs: 1, Samples: 1, Vocab: 1}, 0)
			if err != nil {
				t.Fatal(err)
			}
			shape := backend.ShapeOf(w.p, w.p.Bucket.Samples+5)
			res.AddEncoder(l, shape)
			dev, err := o.Open(facts, s, res)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			if got := dev.Usage(); got != res.Arenas {
				t.Errorf("arenas take %v, reserved %v", got, res.Arenas)
			}
			for i := range res.Weights {
				if err := dev.Pack(i, w.ck); err != nil {
					t.Fatal(err)
				}
			}
			exe, err := dev.Compile(w.p)
			if err != nil {
				t.Fatal(err)
			}
			enc := dev.(backend.Encoder)
			in, patches, rows := enc.Item(), w.item.Patches(), w.item.Tokens
			copy(in.Colours, w.item.Colours()[:])
			copy(in.Pixels, w.item.Pixels(shape.Cols))
			copy(in.Across, w.item.Columns)
			copy(in.Down, w.item.Rows)
			var first []float32
			for _, at := range []int32{0, 5} {
				if err := enc.Encode(exe, backend.EncodeBinding{Patches: patches, Rows: rows, At: at}); err != nil {
					t.Fatal(err)
				}
				if err := enc.WaitItem(); err != nil {
					t.Fatal(err)
				}
				got := encodedRows(dev, w.p)[:len(w.item.Encoded)]
				var off, size float64
				for i, x := range w.item.Encoded {
					off, size = max(off, math.Abs(float64(got[i])-float64(x))), max(size, math.Abs(float64(x)))
				}
				t.Logf("largest difference %.2g of %.2g", off, size)
				if !(off <= most*size) {
					t.Errorf("the tower is off by %g, its largest number is %g", off, size)
				}
				if first == nil {
					first = slices.Clone(got)
				} else if !slices.Equal(first, got) {
					t.Error("the rows differ between two places of the cache")
				}
			}
			refusedEncodings(t, dev, exe, patches, rows)
		})
	}
}

// encodedRows returns the value that EncoderOutput copies.
func encodedRows(dev backend.Device, p *backend.Program) []float32 {
	out := p.Ops[len(p.Ops)-1].(backend.EncoderOutput)
	b := dev.(backend.Inspector).Scratch(out.X, p)
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// refusedEncodings: a place outside of the cache and a launch of the tower as a step are errors.
func refusedEncodings(t *testing.T, dev backend.Device, exe backend.Executable, patches, rows int) {
	t.Helper()
	enc, p := dev.(backend.Encoder), exe.Program()
	var step *backend.StepError
	for _, b := range []backend.EncodeBinding{
		{Patches: patches, Rows: rows, At: int32(p.Bucket.Samples + 6 - rows)},
		{Patches: patches, Rows: rows - 1}, {Patches: patches - 1, Rows: rows}, {Rows: rows},
	} {
		if err := enc.Encode(exe, b); !errors.As(err, &step) {
			t.Errorf("%+v: %v", b, err)
		}
	}
	if err := dev.Launch(exe, backend.Binding{Tokens: 1, Seqs: 1}); !errors.As(err, &step) {
		t.Errorf("Launch: %v", err)
	}
}
