package engine

import (
	"errors"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/models"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/speed"
)

// seeing returns the options and the account of gemma-4-31B with its vision tower, and of a machine.
func seeing(t *testing.T, change func(*Options)) (Options, *Account, backend.Facts, error) {
	t.Helper()
	m, err := Inspect(Source{Name: "google/gemma-4-31B-it", Path: "/absent", Format: "auto", Build: models.Build{Vision: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	o := Options{
		MaxModelLen: 4096, MaxNumSeqs: 8, MaxNumBatchedTokens: 512, BlockSize: 16, KVFormat: m.Dtype, KVBytes: 32 << 30,
		ChunkedPrefill: true, PrefixCaching: true,
	}
	change(&o)
	f := backend.Facts{Backend: "cpu", Device: "CPU", Cores: 64, Variants: []string{"avx512bf16", "generic"}}
	a, err := NewAccount(o, m, cpu.Opener{}, f)
	return o, a, f, err
}

// image returns an item of an image of 280 tokens.
func image(hash byte, at int) Item {
	return Item{Hash: [32]byte{hash}, At: at, Tokens: 280, Across: make([]int32, 2520), Down: make([]int32, 2520)}
}

// TestPredictImages predicts loads with images: the encoder's time is part of their steps, an equal image
// is encoded once, and while a stream decodes a step encodes one image and computes no prompt.
func TestPredictImages(t *testing.T) {
	o, a, f, err := seeing(t, func(*Options) {})
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := speed.Estimate(f, "avx512bf16", 64)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPredictor(o, a, r)
	if err != nil {
		t.Fatal(err)
	}
	encode := p.Encode(2520, 280)
	if encode <= 0 || p.Encode(5040, 560) < 2*encode {
		t.Errorf("an image takes %g s, one of twice the patches %g", encode, p.Encode(5040, 560))
	}
	text, err := p.Load(Load{2, 300, 4})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := p.Load(Load{2, 300, 4}, image(0, 10))
	if err != nil || seen.First < text.First+1.5*encode {
		t.Errorf("two prompts with an image each take %g s, without %g, an encoding %g: %v", seen.First, text.First, encode, err)
	}
	s, err := NewSimulation(o, a, p)
	if err != nil {
		t.Fatal(err)
	}
	courses := make([]*Course, 3)
	for i, hash := range []byte{1, 2, 1} {
		if courses[i], err = s.Submit(float64(i)*1e6, make([]int32, 300), 1, image(hash, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Advance(3e6); err != nil {
		t.Fatal(err)
	}
	first := func(i int) float64 { return courses[i].Tokens[0] - courses[i].Arrival }
	if d := first(1) - first(0); d > 1e-6 || d < -1e-6 {
		t.Errorf("another image takes %g s and %g", first(0), first(1))
	}
	if first(2) > first(0)-encode {
		t.Errorf("an image that was seen takes %g s, at first %g", first(2), first(0))
	}
	if n, other := s.Cached(make([]int32, 300), image(1, 10)), s.Cached(make([]int32, 300), image(3, 10)); n != 288 || other != 0 {
		t.Errorf("%d tokens of the same image and %d of another are cached", n, other)
	}
	if _, err := s.Submit(4e6, make([]int32, 200), 1, image(1, 10)); !errors.As(err, new(*ItemError)) {
		t.Errorf("an image beyond its prompt: %v", err)
	}
}

// TestStallOfImages: while a stream decodes, four images arrive in one prompt. With a target the longest
// time between two tokens of the stream is that of one encoding beside decoding; without, it is that of
// the image's prompt too.
func TestStallOfImages(t *testing.T) {
	longest := func(o Options, a *Account, p *Predictor) float64 {
		t.Helper()
		s, err := NewSimulation(o, a, p)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := s.Submit(0, make([]int32, 16), 400)
		if err != nil {
			t.Fatal(err)
		}
		prompt, items := make([]int32, 1200), []Item{}
		for i := range 4 {
			items = append(items, image(byte(i), 10+290*i))
		}
		for _, at := range []float64{30 * p.DecodeStep(1, 100), 60 * p.DecodeStep(1, 100)} { // the first one is learned from
			if at > 40*p.DecodeStep(1, 100) {
				for i := range items {
					items[i].Hash[1] = 1
				}
			}
			if _, err := s.Submit(at, prompt, 1, append([]Item(nil), items...)...); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Advance(1e9); err != nil {
			t.Fatal(err)
		}
		most := 0.0
		for i := 1; i < len(stream.Tokens); i++ {
			most = max(most, stream.Tokens[i]-stream.Tokens[i-1])
		}
		return most
	}
	o, a, f, err := seeing(t, func(o *Options) { o.MaxNumBatchedTokens = 2048 })
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := speed.Estimate(f, "avx512bf16", 64)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPredictor(o, a, r)
	if err != nil {
		t.Fatal(err)
	}
	free := longest(o, a, p)
	o.ITLTarget = time.Duration(1.2 * p.DecodeStep(1, 100) * float64(time.Second))
	bound := p.DecodeStep(1, 500) + p.Encode(2520, 280)
	if whole := p.Step([]speed.Row{{From: 500, Count: 1, Draw: true}, {From: 900, Count: 280}}); whole > bound {
		bound = whole // an image's tokens are not split either
	}
	if held := longest(o, a, p); held > 1.05*bound || free < 1.3*held {
		t.Errorf("the longest gap is %g s with a target and %g without; one image beside decoding takes %g", held, free, bound)
	}
}

// TestImagesRefused: sizes that could never run are refused with the account.
func TestImagesRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"a step smaller than the largest image": func(o *Options) { o.MaxNumBatchedTokens = 256 },
		"a cache smaller than it":               func(o *Options) { o.Items.Rows = 279 },
		"a larger image":                        func(o *Options) { o.Items.Patches = 1120 * 9 },
		"no budget":                             func(o *Options) { o.Items.Budget = -1 },
	} {
		var refused *ImagesError
		if _, _, _, err := seeing(t, change); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, a, _, err := seeing(t, func(o *Options) { o.MaxNumBatchedTokens, o.Items.Patches, o.Items.Rows = 1200, 1120*9, 4000 })
	if err != nil {
		t.Fatal(err)
	}
	if a.Items != (ItemOptions{Patches: 1120 * 9, Rows: 4000, Budget: 1120 * 9}) || a.Reservation.Encoder.Rows != 4000 {
		t.Errorf("%+v", a.Items)
	}
	if o := schedOptions(Options{}, a); o.Encoder != (sched.Encoder{Rows: 4000, Budget: 1120 * 9, Whole: true}) {
		t.Errorf("%+v", o.Encoder)
	}
}

// TestImagesPlanned: a model with its tower may run on two ranks and with its own head for proposals, on CPUs and
// on GPUs. The tower is in the stages that read its rows: the first one, and that of the head.
func TestImagesPlanned(t *testing.T) {
	two := backend.Shard{World: 2}
	h100, err := devices.Find("h100-80g")
	if err != nil {
		t.Fatal(err)
	}
	last := backend.Shard{Rank: 1, World: 2}
	for name, c := range map[string]struct {
		model string
		build models.Build
		tower bool
	}{
		"tensor":         {"google/gemma-4-31B-it", models.Build{Vision: true, Shard: two, Pipe: backend.Whole}, true},
		"first stage":    {"google/gemma-4-31B-it", models.Build{Vision: true, Shard: backend.Whole, Pipe: two}, true},
		"last stage":     {"google/gemma-4-31B-it", models.Build{Vision: true, Shard: backend.Whole, Pipe: last}, false},
		"one rank":       {"google/gemma-4-31B-it", models.Build{Vision: true, Shard: backend.Whole, Pipe: backend.Whole}, true},
		"own head":       {"Qwen/Qwen3.5-27B", models.Build{Vision: true, Draft: 2, Verify: 2}, true},
		"stage of head":  {"Qwen/Qwen3.5-27B", models.Build{Vision: true, Draft: 2, Verify: 2, Shard: backend.Whole, Pipe: last}, true},
		"middle of head": {"Qwen/Qwen3.5-27B", models.Build{Vision: true, Draft: 2, Verify: 2, Shard: backend.Whole, Pipe: backend.Shard{Rank: 1, World: 4}}, false},
	} {
		m, err := Inspect(Source{Name: c.model, Path: "/absent", Format: "dummy", Build: c.build})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		o := Options{MaxModelLen: 4096, MaxNumSeqs: 8, MaxNumBatchedTokens: 512, BlockSize: 16, KVFormat: m.Dtype, KVBytes: 32 << 30, ChunkedPrefill: true, Drafts: c.build.Draft}
		for on, f := range map[backend.Opener]backend.Facts{
			cpu.Opener{}:  {Backend: "cpu", Device: "CPU", Cores: 64, Variants: []string{"avx512bf16", "generic"}},
			cuda.Opener{}: h100.Facts("cuda"),
		} {
			a, err := NewAccount(o, m, on, f)
			if err != nil {
				t.Fatal(err)
			}
			if a.PlanOnly != nil || (a.Reservation.Encoder.Rows > 0) != c.tower {
				t.Errorf("%s on %s: plan only: %v, %d encoded rows", name, on.Name(), a.PlanOnly, a.Reservation.Encoder.Rows)
			}
		}
	}
}

// TestColumns: encoded rows stand beside each other as squares of patches do.
func TestColumns(t *testing.T) {
	for _, c := range []struct{ wide, tall, side int }{{1, 1, 1}, {3, 2, 2}, {2, 5, 2}, {4, 3, 3}, {20, 14, 3}} {
		m := Item{Tokens: c.wide * c.tall}
		for i := range c.wide * c.tall * c.side * c.side {
			m.Across = append(m.Across, int32(i%(c.wide*c.side)))
		}
		if n := columns(&m); n != c.wide {
			t.Errorf("%+v: %d columns", c, n)
		}
	}
}
