package cuda

import (
	"cmp"
	"fmt"

	"vapp.dev/kernels"
)

// Attention is a kernel of attention and its launch.
type Attention struct {
	Kernel  string
	Rows    int // query rows of a block: a token and one of the heads that share a KV head
	Parts   int // blocks among which the dimensions of an output are divided
	Threads int
	Shared  int // bytes
}

// AttentionKeys is the smallest number of positions of a split, in a sequence that has more.
const AttentionKeys = 64

// ChooseAttention returns the kernel for keys and values stored as f and heads of dim
// dimensions: up to 512, and a multiple of 8 except for F32. A block of the device may have
// `shared` bytes of shared memory; many selects the kernel for prompts. ok is false if there is
// none; every device of CodeFor has one.
func ChooseAttention(f kernels.Format, dim int, many bool, shared int) (a Attention, ok bool) {
	n, ok := Store(f)
	if !ok || dim <= 0 || dim > 512 {
		return Attention{}, false
	}
	if n == 0 {
		a = Attention{Kernel: "attention_f32", Rows: 8, Parts: 1, Threads: 256, Shared: 4 * (8*dim + 2*16*(dim|1))}
		return a, a.Shared <= shared
	}
	if dim%8 != 0 {
		return Attention{}, false
	}
	d, v, keys, stages := 512, 256, 32, 1
	switch {
	case dim <= 64:
		d, v, keys, stages = 64, 64, 64, 2
	case dim <= 128:
		d, v, keys, stages = 128, 128, 64, 2
	case dim <= 256:
		d, v, keys, stages = 256, 256, 32, 2
	}
	a = Attention{Rows: 16, Parts: d / v, Threads: 2 * keys}
	sharedBytes := func() int { return 2 * (a.Rows*(d+8) + stages*(max(d*(keys+8), keys*(d+8))+keys*(v+8))) }
	name := "few"
	if many {
		a.Rows, a.Threads, name = 64, 128, "many"
		if sharedBytes() > shared && d > 128 {
			keys, name = 16, "narrow"
		}
	}
	a.Shared = sharedBytes()
	a.Kernel = fmt.Sprintf("attention_%s_%d_%s", StoredName(f), d, name)
	return a, a.Shared <= shared
}

// QueryFormat returns the 16 bits in which attention multiplies queries with keys stored as f; ok is false for keys in float32.
func QueryFormat(f kernels.Format) (q kernels.Format, ok bool) {
	switch n, ok := Store(f); {
	case !ok || n == 0:
		return kernels.Invalid, false
	case f == kernels.BF16:
		return f, true
	}
	return kernels.F16, true
}

// ChooseAttentionWide returns the kernel for prompts on sm_90a: for keys and values in 16 bits and in 8, which it widens to fp16, without dimensions that are rebuilt, and heads
// of up to 512 dimensions, whole 16 bytes; E4M3 up to 256. ok is false for others.
func ChooseAttentionWide(f kernels.Format, dim int) (a Attention, ok bool) {
	if n, ok := Store(f); !ok || n == 0 || dim <= 0 || dim > 512 || dim*int(f.Bytes(1))%16 != 0 || f == kernels.F8E4M3 && dim > 256 {
		return Attention{}, false
	}
	d, keys, stages := 512, 64, 1
	switch {
	case dim <= 64:
		d, keys, stages = 64, 128, 3
	case dim <= 128:
		d, keys, stages = 128, 128, 2
	case dim <= 256:
		d, keys, stages = 256, 64, 2
	}
	rows := 128
	if d > 256 { // a block's two warpgroups have the same rows
		rows = 64
	}
	a = Attention{Kernel: fmt.Sprintf("attention_%s_%d_wide", StoredName(f), d), Rows: rows, Parts: 1, Threads: 384}
	a.Shared = 2*(a.Rows*d+stages*2*keys*d) + 8*(4*stages+2) // queries, keys and values, barriers
	if f.Bytes(1) == 1 {
		a.Shared += 2 * keys * cmp.Or(d%512, 128) // on their way, in two slots
	}
	return a, true
}

// The most dimensions of latent keys: of their values, and rotated ones behind these.
const (
	LatentRank, LatentRotary = 512, 64
	wideRotary               = 128 // with F32
)

// ChooseLatent returns the kernel for latent keys: values of rank dimensions, each followed by
// rotary ones. Both are multiples of 8, except with F32.
func ChooseLatent(f kernels.Format, rank, rotary int, many bool, shared int) (a Attention, ok bool) {
	n, ok := Store(f)
	if !ok || rank <= 0 || rank > LatentRank || rotary <= 0 {
		return Attention{}, false
	}
	if n == 0 {
		wide := rank + rotary
		a = Attention{Kernel: "attention_f32", Rows: 8, Parts: 1, Threads: 256, Shared: 4 * (8*wide + 16*(wide|1))}
		return a, rotary <= wideRotary && a.Shared <= shared
	}
	if rotary > LatentRotary || rank%8 != 0 || rotary%8 != 0 {
		return Attention{}, false
	}
	const d, v, rotated = LatentRank + LatentRotary + 8, LatentRank + 8, LatentRotary // columns of a query and of a key
	keys, stages := 32, 2
	a = Attention{Rows: 16, Parts: 1, Threads: 128}
	sharedBytes := func() int {
		return 2*(a.Rows*d+stages*(keys*v+max(rotated*(keys+8), keys*(rotated+8)))) + 4*a.Rows*keys
	}
	name := "few"
	if many {
		a.Rows, a.Threads, name = 64, 256, "many"
		if sharedBytes() > shared {
			keys, stages, name = 16, 1, "narrow"
		}
	}
	a.Shared = sharedBytes()
	a.Kernel = fmt.Sprintf("attention_%s_latent_%s", StoredName(f), name)
	return a, a.Shared <= shared
}

// Blocks returns the largest number of blocks of rows for tokens of seqs sequences, with group
// query heads to a KV head.
func (a Attention) Blocks(tokens, seqs, group int) int {
	return min(tokens, seqs) + tokens*group/a.Rows
}

// StoredName returns a format's name in kernels of keys and values.
func StoredName(f kernels.Format) string {
	switch f {
	case kernels.F8E4M3:
		return "e4m3"
	case kernels.F8E5M2:
		return "e5m2"
	}
	return f.String()
}
