package ref

import (
	"math"
	"testing"
)

// TestSumErrorE4M3 compares the bounds of short sums with those by hand.
func TestSumErrorE4M3(t *testing.T) {
	row := func(n int, at map[int]float32) []float32 {
		x := make([]float32, n)
		for i, v := range at {
			x[i] = v
		}
		return x
	}
	ones := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = 1
		}
		return x
	}
	const unit = 1.0 / (1 << 13)
	for name, c := range map[string]struct {
		x            []float32
		most, square float64 // in units; square is 3 times the square of the standard error
	}{
		"one product":            {row(32, map[int]float32{3: 1}), 2, 2},
		"signs":                  {row(32, map[int]float32{3: -1}), 2, 2},
		"a small one":            {row(32, map[int]float32{3: 1, 4: 1.0 / 128}), 3 * (1 + 1.0/128), 3 * (1 + 1.0/128) * (1 + 1.0/128)},
		"not small":              {row(32, map[int]float32{3: 1, 4: 1.0 / 32}), 2 * (1 + 1.0/32), 2 * (1 + 1.0/32) * (1 + 1.0/32)},
		"the sum before":         {row(64, map[int]float32{3: 8, 40: 1}), 2*8 + 2*9, 2*64 + 2*81},
		"the sum before, small":  {row(64, map[int]float32{3: 1, 40: -256}), 2 + 2*256, 2 + 2*256*256},
		"another 128":            {row(160, map[int]float32{3: 8, 140: 1}), 2*4*8 + 2, 2*4*64 + 2},
		"a part of 32":           {row(130, map[int]float32{129: 1}), 2, 2},
		"nothing":                {row(96, nil), 0, 0},
		"the sum is the largest": {ones(32), 2 * 32, 2 * 32 * 32},
	} {
		most, standard := SumErrorE4M3(c.x, ones(len(c.x)))
		if wantMost, want := c.most*unit, math.Sqrt(c.square/3)*unit; math.Abs(most-wantMost) > 1e-12 || math.Abs(standard-want) > 1e-12 {
			t.Errorf("%s: %g and %g, want %g and %g", name, most, standard, wantMost, want)
		}
	}
}
