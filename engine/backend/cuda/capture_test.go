package cuda

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestStarts: the launches of ops are consecutive, whatever their number, so a range of ops
// is a range of launches.
func TestStarts(t *testing.T) {
	if got := starts([]launch{{op: 0}, {op: 2}, {op: 2}, {op: 3}}, 5); !slices.Equal(got, []int{0, 1, 1, 3, 4, 4}) {
		t.Error(got)
	}
	p := layer(t, kernels.BF16, kernels.BF16, 64)
	l := on(t, "h100", backend.Graphs{})
	for _, v := range variants(p.Bucket) {
		launches, err := l.lower(p, v, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		at := starts(launches, len(p.Ops))
		if at[0] != 0 || at[len(p.Ops)] != len(launches) || !slices.IsSorted(at) {
			t.Errorf("%+v: %v of %d launches", v, at, len(launches))
		}
	}
}
