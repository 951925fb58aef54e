package compat

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
)

// seed is one logged run: its request, its logged figures, and the figures that memory-planning
// computed for it.
type seed struct {
	Seed    string
	Run     string
	Model   string
	Release Release
	Device  struct {
		Name     string
		TotalGiB float64
		SMs      int
		Major    int
		Minor    int
	}
	Assumed     bool
	Request     Request
	NonTorchGiB float64
	EstimateGiB float64
	AtGiB       [][2]string
	Logged      map[string]string
	Figured     map[string]string
}

func seeds(t testing.TB) []seed {
	t.Helper()
	data, err := os.ReadFile("testdata/seeds.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []seed
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func config(t testing.TB, model string) checkpoint.Config {
	t.Helper()
	e, ok, err := models.FindEntry(model)
	if err != nil || !ok {
		t.Fatalf("%s is not in the catalogue: %v", model, err)
	}
	c, err := e.Config()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func bytesOf(gib float64) int64 { return int64(math.Round(gib * (1 << 30))) }

func (s seed) inputs(t testing.TB) Inputs {
	r := s.Request
	r.NonTorchBytes = bytesOf(s.NonTorchGiB)
	r.Cudagraph.EstimateBytes = bytesOf(s.EstimateGiB)
	return Inputs{Release: s.Release, Config: config(t, s.Model), Request: r, Device: Device{
		Name: s.Device.Name, TotalBytes: bytesOf(s.Device.TotalGiB), SMs: s.Device.SMs, Major: s.Device.Major, Minor: s.Device.Minor,
	}}
}

func must(t testing.TB, i Inputs) *outcome {
	t.Helper()
	o, err := work(i)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// withBytes returns the outcome of the run for given KV bytes.
func (s seed) withBytes(t testing.TB, bytes int64) *outcome {
	i := s.inputs(t)
	i.Request.KVBytes = bytes
	return must(t, i)
}

// interval returns the range of KV bytes that agrees with all logged figures of the run: rounded
// GiB, tokens, blocks and concurrency.
func (s seed) interval(t testing.TB) (lo, hi int64) {
	mid, err := strconv.ParseFloat(s.Logged["available"], 64)
	if err != nil {
		t.Fatal(err)
	}
	lo, hi = int64(math.Ceil((mid-0.005)*(1<<30))), int64(math.Ceil((mid+0.005)*(1<<30)))-1
	slab := s.withBytes(t, bytesOf(mid)).cache.slab()
	first, last := int64(math.MaxInt64), int64(-1)
	for b := lo / slab; b <= hi/slab; b++ {
		if s.agrees(s.withBytes(t, b*slab)) {
			first, last = min(first, b), b
		}
	}
	if last < 0 {
		t.Fatalf("%s: no byte count gives the logged figures", s.Run)
	}
	return max(lo, first*slab), min(hi, (last+1)*slab-1)
}

func (s seed) agrees(o *outcome) bool {
	for key, got := range map[string]string{
		"tokens": groupDigits(o.tokens()), "blocks": strconv.FormatInt(o.blocks, 10),
		"concurrency": strconv.FormatFloat(o.concurrency(o.length), 'f', 2, 64) + "x",
	} {
		if want := s.Logged[key]; want != "" && want != got {
			return false
		}
	}
	return true
}
