//go:build cgo && linux

package measure

import (
	"context"
	"errors"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/speed"
)

var base = speed.Rates{Threads: 1, Read: 1e9, F32: 1e9, BF16: 1e9}

// TestKernels measures few kernels with small weights: the rates pass their check, and every op of work has one.
func TestKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	f, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	r, err := Kernels(context.Background(), Options{Opener: cpu.Opener{}, Facts: f, Base: base, Quick: true, Progress: func(done, of int, _ string) { parts = of - done }})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"tokens", "store_tokens", "embed", "angles", "norm", "rope", "store_kv", "glu", "add", "gate", "activate", "softcap", "concat", "route", "conv", "delta_net", "gather", "sample", "experts"} {
		if len(r.Ops[op].X) == 0 {
			t.Errorf("no rate of %s", op)
		}
	}
	if len(r.Linear) != 1 || r.Linear[0].Rows.X[0] != 1 || len(r.Attention) != 1 || parts != 0 {
		t.Errorf("%d products, %d kinds of attention, %d parts left", len(r.Linear), len(r.Attention), parts)
	}
}

// TestKernelsFail: a device without op times is refused, and a cancelled context ends the measurement.
func TestKernelsFail(t *testing.T) {
	f, err := ref.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Kernels(context.Background(), Options{Opener: ref.Opener{}, Facts: f, Base: base, Quick: true}); !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	stop(why)
	if _, err := Kernels(ctx, Options{Opener: ref.Opener{}, Facts: f, Base: base, Quick: true}); !errors.Is(err, why) {
		t.Error(err)
	}
}

// TestBeyondCache: weights take three times the caches, and no more than a quarter of the free memory.
func TestBeyondCache(t *testing.T) {
	for o, want := range map[[2]int64]int64{{0, 0}: 160 << 20, {384 << 20, 0}: 1152 << 20, {384 << 20, 2 << 30}: 512 << 20, {32 << 20, 64 << 30}: 160 << 20} {
		if got := (Options{Cache: o[0], Facts: backend.Facts{FreeBytes: o[1]}}).beyondCache(); got != want {
			t.Errorf("caches of %d, %d free: %d, want %d", o[0], o[1], got, want)
		}
	}
}

// TestParts: each format is measured with every kernel that settings select.
func TestParts(t *testing.T) {
	var names []string
	for _, p := range (Options{}).parts() {
		names = append(names, p.what)
	}
	for _, want := range []string{"products with q8_0", "products with q8_0, int8", "products with q8_0, decode", "products with mxfp4, decode"} {
		if !slices.Contains(names, want) {
			t.Errorf("no part %q in %q", want, names)
		}
	}
}
