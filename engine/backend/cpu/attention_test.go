//go:build cgo && linux

package cpu_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

// TestAttentionBits: the rows of a long sequence are the same bits in one chunk and in
// several, with single tokens at the end, on one thread and on several. With several, threads
// share the spans of a row. The first spans are full of keys.
func TestAttentionBits(t *testing.T) {
	const length, tail = 700, 4
	for _, f := range []kernels.Format{kernels.F16, kernels.F32} {
		n := tiny{heads: 6, kv: 2, dim: 32, vocab: 997, tokens: length, seqs: 1, length: length, format: f}
		var want []byte // rows of the last tail positions
		for threads := 1; threads <= 3; threads++ {
			for _, chunk := range []int{length, 250} {
				t.Run(fmt.Sprintf("%v/threads %d/chunks of %d", f, threads, chunk), func(t *testing.T) {
					d := n.open(t, backend.Settings{Threads: threads})
					size := 4 * n.heads * n.dim
					var got []byte
					if chunk == length {
						d.run(t, d.fill(0, 1, length, 0))
						got = d.rows(length)[(length-tail)*size:]
					} else {
						at := 0
						for ; at+chunk < length-tail; at += chunk {
							d.run(t, d.fill(0, 1, chunk, at))
						}
						d.run(t, d.fill(0, 1, length-tail-at, at))
						for at := length - tail; at < length; at++ {
							d.run(t, d.fill(0, 1, 1, at))
							got = append(got, d.rows(1)...)
						}
					}
					if want == nil {
						want = got
					}
					if !bytes.Equal(got, want) {
						t.Error("bits differ from one chunk on one thread")
					}
				})
			}
		}
	}
}

// TestAttentionKindsBits checks the same for windows, sinks, softcaps and pages of bf16 and
// of 8-bit floats, on every instruction set.
func TestAttentionKindsBits(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	facts, err := cpu.Opener{}.Probe()
	must(t, err)
	base := tiny{heads: 8, kv: 2, dim: 32, vocab: 499, tokens: 600, seqs: 1, length: 600, format: kernels.F16}
	kinds := map[string]func(*tiny){
		"window of 21":        func(n *tiny) { n.window = 21 },
		"window of 300":       func(n *tiny) { n.window, n.sinked, n.kv = 300, true, 1 },
		"chunks of 64":        func(n *tiny) { n.window, n.chunked = 64, true },
		"chunks of bf16":      func(n *tiny) { n.format, n.window, n.chunked = kernels.BF16, 272, true },
		"sinks and a cap":     func(n *tiny) { n.sinked, n.softcap = true, 3 },
		"pages in f8_e4m3":    func(n *tiny) { n.format = kernels.F8E4M3 },
		"a window of f8_e5m2": func(n *tiny) { n.format, n.window = kernels.F8E5M2, 128 },
		"pages in bf16":       func(n *tiny) { n.format, n.window = kernels.BF16, 300 },
		"ten heads of bf16":   func(n *tiny) { n.format, n.heads, n.kv, n.softcap = kernels.BF16, 10, 1, 3 },
		"wider f8_e4m3":       func(n *tiny) { n.format, n.dim, n.window = kernels.F8E4M3, 64, 90 },
		"wider f8_e5m2":       func(n *tiny) { n.format, n.dim, n.sinked = kernels.F8E5M2, 64, true },
	}
	for _, variant := range facts.Variants {
		for name, kind := range kinds {
			t.Run(variant+"/"+name, func(t *testing.T) {
				n := base
				kind(&n)
				var want []byte
				for threads := 1; threads <= 2; threads++ {
					d := n.open(t, backend.Settings{Variant: variant, Threads: threads})
					for i, chunk := range []int{n.length, 97, 7} { // 97: the last tile has one token
						d.back = i == 1 // pages in another order
						got := d.chunked(t, chunk)
						if want == nil {
							want = got
						}
						if !bytes.Equal(got, want) {
							t.Errorf("chunks of %d on %d threads, pages backwards %t: bits differ from one chunk on one thread", chunk, threads, d.back)
						}
					}
				}
			})
		}
	}
}

// chunked returns attention's result for every position, in steps of chunk.
func (d *device) chunked(t *testing.T, chunk int) (rows []byte) {
	for at := 0; at < d.spec.length; at += chunk {
		n := min(chunk, d.spec.length-at)
		d.run(t, d.fill(0, 1, n, at))
		rows = append(rows, d.rows(n)...)
	}
	return rows
}

// BenchmarkAttention runs one layer of SmolLM2's shape with data in the cache: one token of
// one sequence at several lengths, and a chunk of a prompt.
func BenchmarkAttention(b *testing.B) {
	for _, c := range [][2]int{{1, 256}, {1, 1024}, {256, 0}, {256, 256}} {
		b.Run(fmt.Sprintf("tokens=%d/at=%d", c[0], c[1]), func(b *testing.B) {
			n := tiny{heads: 9, kv: 3, dim: 64, vocab: 997, tokens: 256, seqs: 1, length: c[0] + c[1], format: kernels.F16}
			d := n.open(b, backend.Settings{Threads: 1})
			for at := 0; at < c[1]; at += 256 {
				d.run(b, d.fill(0, 1, 256, at))
			}
			bind := d.fill(0, 1, c[0], c[1])
			for b.Loop() {
				d.run(b, bind)
			}
		})
	}
}

// BenchmarkAttentionKinds runs one token and a chunk of 64 of one sequence, in one layer with
// real models' heads, on pages in F16 and F8, on one thread. It reports the bytes of pages
// read per second. With a window the time does not grow with the history.
func BenchmarkAttentionKinds(b *testing.B) {
	for _, c := range []struct {
		name string
		tiny
	}{
		{"gpt-oss in a window", tiny{heads: 64, kv: 8, dim: 64, format: kernels.BF16, window: 128, sinked: true}},
		{"gpt-oss", tiny{heads: 64, kv: 8, dim: 64, format: kernels.BF16, sinked: true}},
		{"gemma4", tiny{heads: 16, kv: 2, dim: 512, format: kernels.BF16}},
		{"gemma4 in f8_e4m3", tiny{heads: 16, kv: 2, dim: 512, format: kernels.F8E4M3}},
		{"qwen3.5", tiny{heads: 24, kv: 4, dim: 256, format: kernels.BF16}},
		{"qwen3.5 in f8_e4m3", tiny{heads: 24, kv: 4, dim: 256, format: kernels.F8E4M3}},
	} {
		for _, at := range []int{1024, 8192} {
			for _, tokens := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/tokens=%d/at=%d", c.name, tokens, at), func(b *testing.B) {
					n := c.tiny
					n.vocab, n.tokens, n.seqs, n.length = 16, 64, 1, at+64
					d := n.open(b, backend.Settings{Threads: 1})
					bind := d.fill(0, 1, tokens, at)
					d.run(b, bind)
					read := at
					if n.window > 0 {
						read = n.window
					}
					best := time.Hour // the run that other load disturbed least
					for b.Loop() {
						start := time.Now()
						d.run(b, bind)
						best = min(best, time.Since(start))
					}
					bytes := 2 * n.format.Bytes(int64(read)*int64(n.kv)*int64(n.dim))
					seconds := best.Seconds()
					b.ReportMetric(float64(bytes)/seconds/1e9, "GB/s")
					b.ReportMetric(4*float64(tokens)*float64(read)*float64(n.heads*n.dim)/seconds/1e9, "GFLOP/s")
				})
			}
		}
	}
}
