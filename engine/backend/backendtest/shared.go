package backendtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// sharedWeights tests weights that outlive their device: another device, with other pages, computes the same bits
// with them, at the same time and after the first one is closed. The last user frees them.
func (s *subject) sharedWeights(t *testing.T) {
	s.run(t, "both orders of Close", s.shareInTurn)
	s.run(t, "refused", s.shareRefused)
	s.run(t, "offload", s.offload)
	s.run(t, "slots of adapters", s.shareAdapters)
}

// sharedNet is the net of these tests.
func sharedNet() net {
	return net{weights: kernels.Q8_0, pages: kernels.F32, block: 16, rows: 64, seqs: 1}
}

// share returns a reference to the weights of a rig.
func (r *rig) share() backend.PackedWeights {
	r.t.Helper()
	d, ok := r.dev.(backend.Sharer)
	if !ok {
		r.t.Skipf("not run: %T is no backend.Sharer", r.dev)
	}
	w, err := d.ShareWeights()
	check(r.t, err)
	r.t.Cleanup(func() { w.Close() })
	return w
}

// close closes the rig's device.
func (r *rig) close() {
	r.t.Helper()
	if err := r.dev.Close(); err != nil {
		r.t.Fatalf("Close: %v", err)
	}
	if got := r.dev.Usage(); got != [backend.NumArenas]int64{} {
		r.t.Errorf("after Close the arenas take %v bytes", got)
	}
}

// longest returns all logits of the longest sequence, in steps of 40, 19 and 1 tokens.
func (n *net) longest(r *rig) [][]float32 {
	r.t.Helper()
	return n.runs(r, netSequences()[3:], netPages(r, 1, upTo(r.pageCount())), []int{40, 19, 1})[0]
}

// sameBits fails the test unless two results are equal bit by bit.
func sameBits(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	for i := range want {
		if at := bits(got[i], want[i]); at >= 0 {
			t.Fatalf("%s: position %d: logit %d is %v, not %v", what, i, at, got[i][at], want[i][at])
		}
	}
}

func (s *subject) shareInTurn(t *testing.T) {
	for _, firstFirst := range []bool{true, false} {
		n := sharedNet()
		a := n.rig(t, s, 3)
		want := n.longest(a)
		w := a.share()
		n.shared = w
		b := n.rig(t, s, 30)
		if ua, ub := a.dev.Usage(), b.dev.Usage(); ua[backend.Weights] != ub[backend.Weights] || ua[backend.KV] >= ub[backend.KV] || w.Bytes() != ua[backend.Weights] || w.Bytes() == 0 {
			t.Errorf("arenas of %v and %v bytes, weights of %d", ua, ub, w.Bytes())
		}
		if b.dev.Pack(0, failing{}) == nil {
			t.Error("Pack wrote over shared weights")
		}
		sameBits(t, "of the other device", n.longest(b), want)
		sameBits(t, "of the first one, beside the other", n.longest(a), want)
		i := w.Info()
		if other := b.dev.(backend.Sharer).WeightsInfo(); i != other || i.ID == 0 || i.Devices != 2 || i.Holders != 1 || i.Backend != s.opener.Name() || i.Host != 0 {
			t.Errorf("%+v, of the other device %+v", i, other)
		}
		first, last := a, b
		if !firstFirst {
			first, last = b, a
		}
		first.close()
		sameBits(t, "after the first Close", n.longest(last), want)
		again := last.share()
		if again.Info().ID != i.ID || w.Info().Holders != 2 {
			t.Errorf("a second reference: %+v, %+v", again.Info(), w.Info())
		}
		last.close()
		for range 2 { // the second one does nothing
			check(t, w.Close())
		}
		if again.Bytes() != i.Bytes {
			t.Errorf("held weights have %d bytes of %d", again.Bytes(), i.Bytes)
		}
		n.shared = again
		c := n.rig(t, s, 2)
		check(t, again.Close())
		sameBits(t, "with all others closed", n.longest(c), want)
		c.close()
		if w.Bytes() != 0 || again.Info().Devices != 0 {
			t.Errorf("after the last Close: %+v", again.Info())
		}
		s.refuses(t, c.res, s.settings, again, backend.WeightsClosed, "closed")
		if _, err := a.dev.(backend.Sharer).ShareWeights(); !kindOf(err, backend.WeightsClosed) {
			t.Errorf("ShareWeights after the last Close: %v", err)
		}
	}
}

// kindOf reports whether err is a *backend.WeightsError of a kind.
func kindOf(err error, kind backend.WeightsKind) bool {
	var e *backend.WeightsError
	return errors.As(err, &e) && e.Kind == kind
}

// refuses: Open with weights fails with an error of a kind and these words, and does not become a user.
func (s *subject) refuses(t *testing.T, r backend.Reservation, with backend.Settings, w backend.PackedWeights, kind backend.WeightsKind, words ...string) {
	t.Helper()
	before := w.Info()
	with.Weights = w
	d, err := s.opener.Open(s.facts, with, r)
	if err == nil {
		d.Close()
	}
	if !kindOf(err, kind) {
		t.Errorf("Open: %v, want kind %d", err, kind)
		return
	}
	for _, word := range append(words, "loads the model again") {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q lacks %q", err, word)
		}
	}
	if after := w.Info(); after != before {
		t.Errorf("a refused Open: %+v, before %+v", after, before)
	}
}

// foreign are weights of another backend.
type foreign struct{}

func (foreign) Info() backend.WeightsInfo { return backend.WeightsInfo{Backend: "another"} }
func (foreign) Bytes() int64              { return 1 }
func (foreign) Close() error              { return nil }

func (s *subject) shareRefused(t *testing.T) {
	n := sharedNet()
	a := n.rig(t, s, 1)
	w := a.share()
	s.refuses(t, a.res, s.settings, foreign{}, backend.WeightsOfBackend, "another", s.opener.Name())
	source := s.settings
	source.Cache.Key[0]++
	s.refuses(t, a.res, source, w, backend.WeightsSource, "other files")
	changed := func(change func(w []backend.WeightSpec)) backend.Reservation {
		r := a.res
		r.Weights = slices.Clone(r.Weights)
		change(r.Weights)
		return r
	}
	s.refuses(t, changed(func(w []backend.WeightSpec) { w[0].Name = "renamed" }), s.settings, w, backend.WeightsLayout, "weight table of 96×256", "weight renamed of 96×256")
	s.refuses(t, changed(func(w []backend.WeightSpec) {
		p := slices.Clone(w[1].Parts)
		p[0].Values = slices.Clone(p[0].Values)
		p[0].Values[3]++
		w[1].Parts = p
	}), s.settings, w, backend.WeightsLayout, "weight freqs", "other parts or numbers")
	larger := a.res
	larger.Arenas[backend.Weights] = s.layout.Round(larger.Arenas[backend.Weights] + 1)
	s.refuses(t, larger, s.settings, w, backend.WeightsLayout, "an arena of")
	other := net{weights: kernels.F32, pages: kernels.F32, block: 16, rows: 64, seqs: 1}
	s.refuses(t, other.rig(t, s, 1).res, s.settings, w, backend.WeightsLayout, "weight table of")
	check(t, w.Close())
	s.refuses(t, a.res, s.settings, w, backend.WeightsClosed, "closed") // though the device is open
}

// offload: weights go to the host and back, and a device computes the same bits.
func (s *subject) offload(t *testing.T) {
	n := sharedNet()
	a := n.rig(t, s, 2)
	want := n.longest(a)
	w := a.share()
	o, ok := w.(backend.Offloader)
	if !ok {
		t.Skip("not run: the weights are in the host's memory")
	}
	if _, err := o.Offload(); !kindOf(err, backend.WeightsInUse) {
		t.Errorf("Offload beside a device: %v", err)
	}
	sameBits(t, "after a refused Offload", n.longest(a), want)
	a.close()
	for range 2 {
		for range 2 { // the second one does nothing
			use, err := o.Offload()
			check(t, err)
			if i := w.Info(); use.Bytes != w.Bytes() || i.Host != use.Bytes || use.Bytes == 0 {
				t.Errorf("offloaded %+v, %+v", use, i)
			}
		}
		n.shared = w
		b := n.rig(t, s, 4)
		if i := w.Info(); i.Host != 0 || i.Devices != 1 {
			t.Errorf("restored: %+v", i)
		}
		sameBits(t, "after Offload", n.longest(b), want)
		b.close()
	}
	_, err := o.Offload()
	check(t, err)
	check(t, w.Close())
	if _, err := o.Offload(); !kindOf(err, backend.WeightsClosed) || w.Bytes() != 0 {
		t.Errorf("Offload after Close: %v, %d bytes", err, w.Bytes())
	}
}

// shareAdapters: slots of adapters are one device's. The next one has them when the first is closed, and empty.
func (s *subject) shareAdapters(t *testing.T) {
	const in, out, rank, rows = 64, 32, 8, 5
	r, m := rng(3), &tensors{}
	w := backend.Adapters{Rank: rank, Modules: 1, Ends: [backend.MaxModules]int{out}}
	xs, ys := m.table("x", normal(r, rows*in, 1), in), m.table("y", normal(r, rows*out, 1), out)
	w.A, w.B = m.matrix("a", backend.Lookup, kernels.F32, rank, in, nil), m.matrix("b", backend.Lookup, kernels.F32, rank, out, nil)
	m.specs[w.A].Unloaded, m.specs[w.B].Unloaded = true, true
	last := m.table("last", normal(r, rows*out, 1), out)
	var y, z backend.Value
	pl := plan{tensors: m, vocab: rows, slots: 1, bucket: backend.Bucket{Tokens: rows, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, xs, in)
		y, z = input(rec, ys, out), input(rec, last, out)
		mid := rec.New("mid", kernels.F32, backend.PerToken, rank)
		rec.Do(backend.Adapt{X: v, Mid: mid, Y: y, Adapters: w})
	}}
	if err := s.layout.Runs(m.specs, s.reserve(t, pl).Programs[0]); errors.Is(err, backend.ErrUnsupported) {
		t.Skipf("not run: %v", err)
	}
	run := func(r *rig, slot int32) (adapted, after []float32) {
		b := r.fill(0, []feed{{tokens: upTo(rows)}})
		for i := range rows {
			r.dev.Step(0).Adapters[i] = slot
		}
		r.launch(b)
		return r.floats(y, rows), r.floats(z, rows)
	}
	a := s.rig(t, pl)
	put := a.dev.(backend.AdapterWriter)
	check(t, put.WriteRows(w.A, 0, encode(kernels.F32, normal(r, rank*in, 1))))
	check(t, put.WriteRows(w.B, 0, encode(kernels.F32, normal(r, rank*out, 1))))
	plain, after := run(a, -1)
	if with, _ := run(a, 0); slices.Equal(with, plain) {
		t.Fatal("the adapter changes nothing: this test would prove nothing")
	}
	held := a.share()
	if !held.Info().Adapters {
		t.Errorf("%+v", held.Info())
	}
	s.refuses(t, a.res, s.settings, held, backend.WeightsInUse, "slots of adapters", "close the other engine first")
	a.close()
	pl.weights = held
	b := s.rig(t, pl)
	got, behind := run(b, 0)
	if !slices.Equal(got, plain) || !slices.Equal(behind, after) {
		t.Error("the slots of the next device are not empty, or other weights have changed")
	}
}
