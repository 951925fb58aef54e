package steptime

import (
	"math"
	"testing"
)

// TestEncodeTime learns the time of steps that encode items beside decoding: small items fit the
// target, large ones do not, and a step that encodes leaves prompts the rest of the target.
func TestEncodeTime(t *testing.T) {
	const decode, token, patch = 2e-3, 10e-6, 4e-6
	p := New(0.010)
	seconds := func(w Work) float64 {
		return decode + token*float64(w.Prompt) + patch*float64(w.Patches)
	}
	decoding := Work{}
	for range 4 {
		decoding = decoding.With(100, 1)
	}
	with := func(patches int) Work {
		w := decoding
		w.Patches, w.Items = patches, 1
		return w
	}
	if p.Fits(with(1)) {
		t.Error("an item fits before any was measured")
	}
	for i := range 400 {
		w := decoding
		if i%2 == 0 {
			w = w.With(0, 16*(1+i%48))
		}
		p.Learn(w, seconds(w))
	}
	if n := p.PrefillBudget(with(1000), 0, 100); n != 0 {
		t.Errorf("%d prompt tokens beside an item that was not measured", n)
	}
	for range 20 {
		p.Learn(with(1000), seconds(with(1000)))
	}
	if got := p.encode.predict(with(1000)); math.Abs(got-1000*patch) > 0.1*1000*patch {
		t.Errorf("1,000 patches take %g s, want %g", got, 1000*patch)
	}
	if !p.Fits(with(1000)) || !p.Fits(with(100)) || p.Fits(with(4000)) {
		t.Error("1,000 patches and fewer fit the target, 4,000 do not")
	}
	free, beside := p.PrefillBudget(decoding, 0, 4000), p.PrefillBudget(with(1000), 0, 4000)
	if beside == 0 || beside >= free || seconds(with(1000).With(0, beside)) > 0.010 {
		t.Errorf("%d prompt tokens beside an item, %d without", beside, free)
	}
	if n := p.PrefillBudget(with(4000), 0, 4000); n != 0 {
		t.Errorf("%d prompt tokens beside an item beyond the target", n)
	}
	if was := p.cost.predict(decoding); math.Abs(was-decode) > 0.2*decode {
		t.Errorf("decoding is predicted to take %g s, want %g", was, decode)
	}
}
