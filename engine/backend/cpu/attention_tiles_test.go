//go:build cgo && linux

package cpu_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	xcpu "golang.org/x/sys/cpu"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/isa"
)

// TestAttentionNarrow runs the attention of avx512bf16, with VDPBF16PS and with multiply-adds,
// and that of amx with emulated tiles. The bits do not depend on chunks (single tokens do not use
// tiles), threads, or the order and size of pages. The result equals that of avx512 except for
// the rounding of queries and weights to bf16.
func TestAttentionNarrow(t *testing.T) {
	if !xcpu.X86.HasAVX512BF16 || !xcpu.X86.HasAVX512VBMI {
		t.Skip("not run: this CPU has no AVX-512 BF16 and VBMI")
	}
	t.Run("amx", func(t *testing.T) { attendNarrow(t, cpu.SoftTiles{}, "avx512") })
	t.Run("avx512bf16", func(t *testing.T) { attendNarrow(t, nil, "avx512bf16") })
}

// TestAttentionMultiplyAdds checks that multiply-adds give a decode step the bits of VDPBF16PS.
// Processors with AMX use them.
func TestAttentionMultiplyAdds(t *testing.T) {
	if !xcpu.X86.HasAVX512BF16 || !xcpu.X86.HasAVX512VBMI {
		t.Skip("not run: this CPU has no AVX-512 BF16 and VBMI")
	}
	for name, n := range map[string]tiny{
		"bf16":          {heads: 10, kv: 2, dim: 96, format: kernels.BF16, window: 70},
		"eight f8_e4m3": {heads: 8, kv: 1, dim: 64, format: kernels.F8E4M3, softcap: 3},
		"f8_e5m2":       {heads: 6, kv: 2, dim: 128, format: kernels.F8E5M2, sinked: true},
	} {
		t.Run(name, func(t *testing.T) {
			n.vocab, n.tokens, n.seqs, n.length = 499, 1, 1, 300
			rows := func(variants ...string) []byte {
				defer isa.Replace(&isa.Processor{Variants: variants, Ask: func() error { return errors.New("no tiles") }})()
				return n.open(t, backend.Settings{Variant: "avx512bf16", Threads: 1}).chunked(t, 1)
			}
			if !bytes.Equal(rows("avx512bf16", "generic"), rows("amx", "avx512bf16", "generic")) {
				t.Error("bits differ from those of VDPBF16PS")
			}
		})
	}
}

func attendNarrow(t *testing.T, opener backend.Opener, variant string) {
	for name, n := range map[string]tiny{
		"bf16":             {heads: 6, kv: 2, dim: 64, format: kernels.BF16},
		"window, sinks":    {heads: 8, kv: 1, dim: 32, format: kernels.BF16, window: 70, sinked: true},
		"cap, three tiles": {heads: 4, kv: 4, dim: 96, format: kernels.BF16, softcap: 3},
		"f16, as avx512":   {heads: 2, kv: 1, dim: 32, format: kernels.F16},
		"f8_e4m3":          {heads: 12, kv: 1, dim: 128, format: kernels.F8E4M3},
		"f8_e5m2":          {heads: 4, kv: 2, dim: 64, format: kernels.F8E5M2, window: 70},
	} {
		t.Run(name, func(t *testing.T) {
			n.vocab, n.tokens, n.seqs, n.length = 499, 300, 1, 300
			plain := n.open(t, backend.Settings{Variant: "avx512", Threads: 2}).chunked(t, n.length)
			var want []byte
			for i, chunk := range []int{n.length, 97, 7, n.length - 1} { // the last step has one token
				n.opener, n.block = opener, 16<<(i%3)
				d := n.open(t, backend.Settings{Variant: variant, Threads: 1 + i%2})
				d.back = i == 1
				got := d.chunked(t, chunk)
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("chunks of %d: bits differ from one chunk", chunk)
				}
			}
			most, same := apart(plain, want), bytes.Equal(plain, want)
			if most > 0.02 || same != (n.format == kernels.F16) {
				t.Errorf("avx512 gives other numbers, %g apart (the same: %t)", most, same)
			}
		})
	}
}

// apart returns the largest difference of two arrays of F32; infinite if one has a NaN.
func apart(a, b []byte) (most float64) {
	for i := 0; i < len(a); i += 4 {
		x, y := math.Float32frombits(binary.LittleEndian.Uint32(a[i:])), math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		d := math.Abs(float64(x) - float64(y))
		if d != d {
			return math.Inf(1)
		}
		most = max(most, d)
	}
	return most
}

// TestAttentionSoftTiles runs the attention parts of the suite on emulated tiles: pages contain
// NaN from an earlier user, in numbers that no row sees.
func TestAttentionSoftTiles(t *testing.T) {
	if !xcpu.X86.HasAVX512BF16 || !xcpu.X86.HasAVX512VBMI {
		t.Skip("not run: this CPU has no AVX-512 BF16 and VBMI")
	}
	u := backendtest.Suite{Opener: cpu.SoftTiles{}, Settings: backend.Settings{Variant: "avx512", Threads: 2}}
	for _, name := range backendtest.Parts() {
		if strings.Contains(name, "attention") {
			u.Part(t, name, 2)
		}
	}
}
