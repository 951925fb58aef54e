package backend

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/kernels"
)

// TestGridChecks: the table of Resample is square, and Join makes whole rows.
func TestGridChecks(t *testing.T) {
	p, _, _, _ := small(t)
	p.Weights = append(p.Weights, WeightSpec{Name: "places", Rows: 16, Cols: 48, Use: Lookup})
	r := &Recorder{p: p, at: map[Value]bool{}}
	at, joined := r.New("at", kernels.I32, PerToken, 1), r.New("joined", kernels.F32, PerSample, 96)
	before := len(p.Ops)
	good := []Op{Resample{X: 1, Across: at, Down: at, Table: 3, Side: 4}, Join{X: 1, Y: joined}}
	p.Ops = append(p.Ops, good...)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for want, op := range map[string]Op{
		"Table (places) is 16×48": Resample{X: 1, Across: at, Down: at, Table: 3, Side: 5},
		"a grid of 0":             Resample{X: 1, Across: at, Down: at, Table: 3},
		"Across (x) is f32":       Resample{X: 1, Across: 1, Down: at, Table: 3, Side: 4},
		"no whole rows of 16":     Join{X: 3, Y: r.New("odd", kernels.F32, PerSample, 40)},
		"2 rows of 1 each for 4":  Join{X: 1, Y: 7},
	} {
		p.Ops = append(p.Ops[:before], op)
		var bad *ProgramError
		if err := p.Check(); !errors.As(err, &bad) || !strings.Contains(bad.Why, want) {
			t.Errorf("%+v: %v, want %q", op, err, want)
		}
	}
}
