package plan

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
)

// TestCheckLimits: a limit is refused if and only if it is below the sum of used memory, ledger and
// threads; mapped files count for the address space only.
func TestCheckLimits(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name string
		need int64
	}{
		{backend.AddressSpace, 100*mib + (30+7+2)*mib + 22*(8+64)*mib},
		{backend.DataSize, 100*mib + 30*mib + 22*8*mib},
	} {
		l := backend.ProcessLimit{Name: c.name, Limit: c.need, Used: 100 * mib, Stack: 8 * mib}
		p := &Plan{
			Options: engine.Options{Backend: backend.Settings{Threads: 4}},
			Ledger: Ledger{{Name: "weights", Bytes: 10 * mib, Basis: Exact}, {Name: "runtime", Bytes: 20 * mib, Basis: Bound},
				{Name: reserveItem, Bytes: 40 * mib, Basis: Held}, {Name: mappedItem, Bytes: 7 * mib, Basis: Apart}, {Name: cacheItem, Bytes: 80 * mib, Basis: Apart}},
			Facts: backend.Facts{Cores: 2, HugeBytes: 2 * mib, Limits: []backend.ProcessLimit{l}},
		}
		if err := p.CheckLimits(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		p.Facts.Limits[0].Limit--
		var no *LimitError
		if err := p.CheckLimits(); !errors.As(err, &no) || no.Need != c.need || !no.Serving || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %d bytes", c.name, err, c.need)
		}
	}
	l := []backend.ProcessLimit{{Name: backend.AddressSpace, Limit: 1 << 30, Used: 1<<30 - planningBytes + 1}}
	var no *LimitError
	if err := CheckLimits(l); !errors.As(err, &no) || no.Serving {
		t.Errorf("too little to plan: %v", err)
	}
	l[0].Used--
	if err := CheckLimits(l); err != nil {
		t.Error(err)
	}
}
