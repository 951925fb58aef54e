//go:build cgo && linux

package cpu_test

import (
	"math/rand/v2"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

var small = tiny{heads: 2, kv: 1, dim: 16, vocab: 101, tokens: 8, seqs: 4, length: 64, format: kernels.F32}

// TestPoolStress launches a tiny program ten thousand times, with pauses in which threads
// fall asleep between launches and between a launch and its Wait. Every step must sample the
// same token: a phase that began too early or a lost wake-up would show as a wrong token or
// as a hang.
func TestPoolStress(t *testing.T) {
	d := small.open(t, backend.Settings{Threads: 2})
	r := rand.New(rand.NewPCG(3, 3))
	nap := func() {
		if r.IntN(50) == 0 {
			time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
		}
	}
	var want [2][4]int32
	for i := range 10_000 {
		set := i % 2
		if i >= 2 {
			must(t, d.Wait(set))
			got := [4]int32(d.Step(set).Sampled)
			if i < 4 {
				want[set] = got
			}
			if got != want[set] {
				t.Fatalf("launch %d: tokens %v, before %v", i-2, got, want[set])
			}
		}
		b := d.fill(set, 4, 1+set, 9*set)
		nap()
		must(t, d.Launch(d.exe, b))
		nap()
	}
	must(t, d.Wait(0))
	must(t, d.Wait(1))
}

// TestStepAllocates asserts that a step allocates nothing on Go's heap.
func TestStepAllocates(t *testing.T) {
	d := small.open(t, backend.Settings{Threads: 2})
	b := d.fill(0, 4, 1, 0)
	if n := testing.AllocsPerRun(100, func() { d.run(t, b) }); n != 0 {
		t.Errorf("%g allocations in a step", n)
	}
}

// TestTokensOfTheOtherSet launches a step that refers to tokens the previous step has not
// sampled yet.
func TestTokensOfTheOtherSet(t *testing.T) {
	d := small.open(t, backend.Settings{Threads: 2})
	first := d.fill(0, 4, 2, 0)
	must(t, d.Launch(d.exe, first))
	second := d.fill(1, 4, 1, 2)
	s := d.Step(1)
	for q := range 4 {
		s.Tokens[q] = int32(-1 - q)
	}
	must(t, d.Launch(d.exe, second))
	must(t, d.Wait(0))
	must(t, d.Wait(1))
	ahead, tokens := [4]int32(s.Sampled), [4]int32(d.Step(0).Sampled)
	second = d.fill(1, 4, 1, 2)
	copy(s.Tokens, tokens[:])
	d.run(t, second)
	if plain := [4]int32(s.Sampled); plain != ahead {
		t.Errorf("tokens %v when launched ahead, %v when waited for", ahead, plain)
	}
}

// TestHTTPShare runs steps on one thread while other processes use every processor: the
// pool's thread sleeps. TestRestFor checks how long.
func TestHTTPShare(t *testing.T) {
	n := tiny{heads: 8, kv: 8, dim: 64, vocab: 5000, tokens: 64, seqs: 1, length: 64, format: kernels.F32}
	d := n.open(t, backend.Settings{Threads: 1, HTTPShare: 0.8})
	for range runtime.NumCPU() {
		other := exec.Command("sh", "-c", "while :; do :; done")
		if err := other.Start(); err != nil {
			t.Skipf("not run: %v", err)
		}
		t.Cleanup(func() {
			other.Process.Kill()
			other.Wait()
		})
	}
	b, patience := d.fill(0, 1, 64, 0), time.Now().Add(time.Minute)
	for {
		d.run(t, b)
		worked, rested := d.Device.(interface {
			Share() (worked, rested time.Duration)
		}).Share()
		if rested > 0 {
			break
		}
		if time.Now().After(patience) {
			t.Fatalf("the thread worked for %v and never rested", worked)
		}
	}
}

// TestRestFor: including the sleep, the thread used its processor for 1 − share of the time,
// unless it used it less anyway or the sleep reached its maximum.
func TestRestFor(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		busy, wall time.Duration
		share      float64
		want       time.Duration
	}{
		{10 * ms, 10 * ms, 0.8, 40 * ms},
		{10 * ms, 20 * ms, 0.8, 30 * ms},
		{10 * ms, 20 * ms, 0.5, 0},
		{10 * ms, 50 * ms, 0.8, 0},
		{10 * ms, 70 * ms, 0.8, 0},
		{60 * ms, 60 * ms, 0.75, 100 * ms}, // of 180
	} {
		got := cpu.RestFor(x.busy, x.wall, x.share)
		if d := got - x.want; d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("busy %v of %v, share %g: got %v, want %v", x.busy, x.wall, x.share, got, x.want)
		}
	}
}

// BenchmarkSample samples one step of eight rows over a vocabulary of SmolLM2's size; the
// product that computes the logits is small.
func BenchmarkSample(b *testing.B) {
	rows := map[string]backend.SampleRow{
		"greedy":      {TopP: 1, Repetition: 1},
		"temperature": {TopP: 1, Repetition: 1, Temperature: 0.8},
		"top_k":       {TopP: 1, Repetition: 1, Temperature: 0.8, TopK: 40},
		"top_p":       {TopP: 0.95, Repetition: 1, Temperature: 0.8},
		"all":         {TopP: 0.95, Repetition: 1.1, Temperature: 0.8, TopK: 40, MinP: 0.01, Frequency: 0.1, Presence: 0.1, Flags: backend.WantLogprob, NumTop: 1},
	}
	for name, row := range rows {
		b.Run(name, func(b *testing.B) {
			n := tiny{heads: 2, kv: 1, dim: 16, vocab: 49152, tokens: 8, seqs: 8, length: 64, format: kernels.F32}
			d := n.open(b, backend.Settings{Threads: 1})
			bind := d.fill(0, 8, 1, 0)
			for q := range 8 {
				row.Seq, row.HistoryLen, row.Seed = int32(q), 1, uint64(q)
				d.Step(0).Sampling[q] = row
			}
			for b.Loop() {
				d.run(b, bind)
			}
		})
	}
}
