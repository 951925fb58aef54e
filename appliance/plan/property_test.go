package plan_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// one returns a random element.
func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// vary returns a profile with random fields that the schema allows.
func vary(r *rand.Rand, base *schema.Profile, longest int) *schema.Profile {
	p := *base
	p.MaxModelLen = one(r, schema.Auto, schema.Count(1+r.IntN(longest)))
	p.Memory.KVCacheDtype = one(r, "auto", "float32", "bfloat16", "float16")
	p.Memory.BlockSize = one(r, 16, 32, 64, 256)
	p.Memory.Reserve = schema.Bytes(r.Int64N(512 << 20))
	p.Memory.Utilization, p.Memory.KVCache = float64(1+r.IntN(100))/100, 0
	if r.IntN(3) == 0 {
		p.Memory.Utilization, p.Memory.KVCache = 0, schema.Bytes(1+r.Int64N(8<<30))
	}
	p.Scheduler.MaxNumSeqs = 1 + r.IntN(512)
	p.Scheduler.MaxNumBatchedTokens = p.Scheduler.MaxNumSeqs + r.IntN(4096)
	p.Scheduler.ChunkedPrefill = r.IntN(4) > 0
	return &p
}

// TestRandomProfiles: in every plan the ledger is within the budget, one sequence fits, the same inputs
// give the same bytes, and more memory never has less capacity. For every profile that does not fit,
// every proposed change fits.
func TestRandomProfiles(t *testing.T) {
	base, m := shipped(t, "llama-3.2-1b.cue"), llama1B(t)
	small := toy(t)
	r := rand.New(rand.NewPCG(1, 2))
	planned, short := 0, 0
	for range 120 {
		model := m
		if r.IntN(3) == 0 {
			model = small
		}
		f := server
		f.TotalBytes = r.Int64N(24 << 30)
		f.Cores = 1 + r.IntN(8)
		i := in(vary(r, base, model.Config.MaxPositionEmbeddings), model, f)
		p, err := plan.Make(i)
		var no *plan.DoesNotFitError
		var refused *schema.Error
		switch {
		case err == nil:
			planned++
			holds(t, i, p, r)
		case errors.As(err, &no):
			short++
			if no.Missing <= 0 || no.Missing != no.Need-no.Have {
				t.Errorf("missing %d of %d, has %d", no.Missing, no.Need, no.Have)
			}
			helps(t, i, no)
		case !errors.As(err, &refused):
			t.Errorf("%T: %v", err, err)
		}
	}
	if planned < 20 || short < 20 {
		t.Errorf("only %d plans and %d shortages were seen", planned, short)
	}
}

func holds(t *testing.T, i plan.Inputs, p *plan.Plan, r *rand.Rand) {
	t.Helper()
	if total := p.Ledger.Total(); total > p.Budget.Bytes {
		t.Errorf("the ledger has %d bytes, the budget %d", total, p.Budget.Bytes)
	}
	for a := backend.Arena(0); a < backend.NumArenas; a++ {
		if n := p.Account.Reservation.Arenas[a]; n != p.Ledger.Bytes(a.String()) {
			t.Errorf("%v: reserved %d, listed %d", a, n, p.Ledger.Bytes(a.String()))
		}
	}
	for _, it := range p.Ledger {
		var sum int64
		for _, part := range it.Parts {
			sum += part.Bytes
		}
		if len(it.Parts) > 0 && sum != it.Bytes {
			t.Errorf("%s: %d bytes, its parts have %d", it.Name, it.Bytes, sum)
		}
	}
	lengths := p.Capacity.Lengths
	if last := lengths[len(lengths)-1]; last.Tokens != p.Options.MaxModelLen || last.Sequences < 1 {
		t.Errorf("of the model length fit %+v", last)
	}
	again := made(t, i)
	if a, b := text(t, p), text(t, again); a != b {
		t.Errorf("two plans of the same inputs differ:\n%s\n%s", a, b)
	}
	i.Facts.TotalBytes += r.Int64N(4 << 30)
	more, err := plan.Make(i)
	if err != nil {
		t.Errorf("with more memory: %v", err)
	} else if less := more.Capacity.Tokens < p.Capacity.Tokens && more.Options.MaxModelLen <= p.Options.MaxModelLen; less || more.Options.MaxModelLen < p.Options.MaxModelLen {
		t.Errorf("more memory carries less: %+v, %+v", p.Capacity, more.Capacity)
	}
}

func text(t *testing.T, p *plan.Plan) string {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// helps applies each change to the profile and plans it.
func helps(t *testing.T, i plan.Inputs, no *plan.DoesNotFitError) {
	t.Helper()
	for _, c := range no.Changes {
		if _, err := plan.Make(changed(t, i, c)); err != nil {
			t.Errorf("%v does not make it fit: %v", c, err)
		}
	}
}

// changed returns the inputs after the change: another profile, with the model built for it, or another
// device.
func changed(t *testing.T, i plan.Inputs, c plan.Change) plan.Inputs {
	t.Helper()
	if c.Path == "--gpu" {
		d, err := devices.Find(c.New)
		if err != nil {
			t.Fatal(err)
		}
		i.Facts = d.Facts(i.Opener.Name())
		return i
	}
	i.Profile = applied(t, i.Profile, c)
	m, err := i.Model.With(plan.Source(i.Profile, "").Build)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	i.Model = m
	return i
}

// applied returns the profile with the change, parsed as from a profile's text.
func applied(t *testing.T, old *schema.Profile, c plan.Change) *schema.Profile {
	t.Helper()
	p := *old
	read := func(into any) {
		if err := json.Unmarshal([]byte(c.New), into); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
	}
	switch c.Path {
	case "memory.utilization":
		read(&p.Memory.Utilization)
	case "memory.kvCache":
		p.Memory.Utilization = 0
		read(&p.Memory.KVCache)
	case "memory.kvCacheDtype":
		read(&p.Memory.KVCacheDtype)
	case "memory.reserve":
		read(&p.Memory.Reserve)
	case "maxModelLen":
		read(&p.MaxModelLen)
	case "scheduler.maxNumSeqs":
		read(&p.Scheduler.MaxNumSeqs)
	case "scheduler.maxNumBatchedTokens":
		read(&p.Scheduler.MaxNumBatchedTokens)
	case "quantization":
		read(&p.Quantization)
	case "memory.kvRebuild":
		read(&p.Memory.KVRebuild)
	case "parallel.tensor":
		read(&p.Parallel.Tensor)
	case "parallel.pipeline":
		read(&p.Parallel.Pipeline)
	case "cudagraph.mode":
		p.Cudagraph = &schema.Cudagraph{}
		read(&p.Cudagraph.Mode)
	case "multimodal.limits.image", "multimodal.image.tokens", "multimodal.image.maxPixels":
		m, image := *p.Multimodal, schema.MediaImage{}
		if m.Image != nil {
			image = *m.Image
		}
		p.Multimodal, m.Image = &m, &image
		read(map[string]*int{"multimodal.limits.image": &m.Limits.Image, "multimodal.image.tokens": &image.Tokens, "multimodal.image.maxPixels": &image.MaxPixels}[c.Path])
	default:
		t.Fatalf("change of %s", c.Path)
	}
	return &p
}

// TestSmallestChanges: a slightly smaller change than the proposed one does not fit.
func TestSmallestChanges(t *testing.T) {
	f := server
	f.TotalBytes, f.Cores = 1505<<20, 2
	p := shipped(t, "smollm2.cue")
	p.Memory.Utilization, p.Memory.KVCache, p.MaxModelLen, p.Scheduler.MaxNumSeqs = 0.9, 0, 4096, 256
	i := in(p, smol(t), f)
	_, err := plan.Make(i)
	var no *plan.DoesNotFitError
	if !errors.As(err, &no) {
		t.Fatal(err)
	}
	nearer := map[string]func(*schema.Profile){
		"memory.utilization":   func(p *schema.Profile) { p.Memory.Utilization -= 0.01 },
		"memory.reserve":       func(p *schema.Profile) { p.Memory.Reserve += 1 << 20 },
		"maxModelLen":          func(p *schema.Profile) { p.MaxModelLen += 16 },
		"scheduler.maxNumSeqs": func(p *schema.Profile) { p.Scheduler.MaxNumSeqs++ },
		"memory.kvCache":       func(p *schema.Profile) { p.Memory.KVCache -= 1 << 20 },
	}
	for _, c := range no.Changes {
		less, known := nearer[c.Path]
		if c.Path == "--gpu" {
			continue
		}
		if !known {
			t.Errorf("unexpected %v", c)
			continue
		}
		delete(nearer, c.Path)
		q := applied(t, p, c)
		less(q)
		if _, err := plan.Make(in(q, i.Model, f)); err == nil {
			t.Errorf("%v is not the smallest change of its field", c)
		}
	}
	for path := range nearer {
		t.Errorf("no change of %s is proposed", path)
	}
}

func BenchmarkMake(b *testing.B) {
	benchmark(b, in(shipped(b, "llama-3.2-1b.cue"), llama1B(b), server))
}

func BenchmarkMakeAuto(b *testing.B) {
	p := shipped(b, "llama-3.2-1b.cue")
	p.MaxModelLen = schema.Auto
	f := server
	f.TotalBytes = 6 << 30
	benchmark(b, in(p, llama1B(b), f))
}

func benchmark(b *testing.B, i plan.Inputs) {
	for b.Loop() {
		if _, err := plan.Make(i); err != nil {
			b.Fatal(err)
		}
	}
}
