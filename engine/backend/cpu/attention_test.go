//go:build cgo && linux

package cpu_test

import (
	"bytes"
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestAttentionBits: the rows of a long sequence are the same bits in one chunk and
// in several, one token at a time at the end, on one thread and on several, where the
// spans of a row are shared among threads. The first spans are full of keys.
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

// BenchmarkAttention is one layer of SmolLM2's shape in a cache: a token of one
// sequence at several lengths, and a chunk of a prompt.
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
