//go:build linux && cgo && cuda

package cuda_test

import (
	"context"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/sample"
)

// TestStacks: the memory for kernels' stacks is taken when the engine opens, as many bytes as the plan has, and no launch
// takes more. Without the reservation the first launch of a kernel with a stack does, after the arenas took the rest. A
// stack that the table of the kernels does not have is of PTX that the driver compiled; it is taken when the engine opens, too.
func TestStacks(t *testing.T) {
	config := configured(t, nil)
	for name, c := range map[string]struct {
		table    int // the largest stack that the plan has
		settings string
		planned  int64
	}{
		"none":             {0, "capability=9.0,sms=132", 0},
		"the context's":    {1000, "capability=9.0,sms=132,stack=1000", 0},
		"hopper":           {1040, "capability=9.0,sms=132,stack=1040", 6 << 20}, // 16 × 2,048 × 132 bytes
		"ada":              {1040, "capability=8.9,sms=100,stack=1040", 4 << 20}, // 16 × 1,536 × 100 bytes
		"not in the table": {8, "capability=9.0,sms=132,stack=1040", 0},
	} {
		t.Run(name, func(t *testing.T) {
			cuda.SetStackBytes(t, c.table)
			emulate(t, "reset,"+c.settings)
			defer emulate(t, "reset")
			grown := driver.Counted("grown")
			o, err := config()
			if err != nil {
				t.Fatal(err)
			}
			e, err := engine.Open(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			var planned int64
			for _, l := range o.Account.Layout.(backend.Overheads).Overheads(o.Account.Reservation) {
				if l.Name == "stacks" {
					planned = l.Bytes
				}
			}
			taken := driver.Counted("stacks")
			if planned != c.planned || taken != planned && name != "not in the table" || name == "not in the table" && taken != 6<<20 {
				t.Errorf("%d bytes are taken, planned are %d, want %d", taken, planned, c.planned)
			}
			p := sample.Default()
			p.MaxTokens, p.IgnoreEOS = 3, true
			s, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1, 2, 3}, Params: p})
			if err != nil {
				t.Fatal(err)
			}
			if err := endOf(t, s[0]); err != nil {
				t.Error(err)
			}
			if n := driver.Counted("grown"); n != grown || driver.Counted("stacks") != taken {
				t.Errorf("%d launches took memory for stacks: %d bytes, before %d", n-grown, driver.Counted("stacks"), taken)
			}
		})
	}
}
