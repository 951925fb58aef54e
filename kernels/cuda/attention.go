package cuda

import (
	"fmt"

	"vapp.dev/kernels"
)

// Attention is one kernel of attention and its launch.
type Attention struct {
	Kernel  string
	Rows    int // query rows of a block: a token and one of the heads that share a KV head
	Parts   int // blocks that share the dimensions of an output
	Threads int
	Shared  int // bytes
}

// AttentionKeys is the least positions that a split has, of a sequence that has more.
const AttentionKeys = 64

// ChooseAttention is the kernel for keys and values stored as f, heads of dim up to 512, a
// multiple of 8 but for F32, on a device whose blocks may have shared bytes; many: for
// prompts. ok is false where there is none; every device that CUDA 13 knows has one.
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
	room := func() int { return 2 * (a.Rows*(d+8) + stages*(max(d*(keys+8), keys*(d+8))+keys*(v+8))) }
	name := "few"
	if many {
		a.Rows, a.Threads, name = 64, 128, "many"
		if room() > shared && d > 128 {
			keys, name = 16, "narrow"
		}
	}
	a.Shared = room()
	a.Kernel = fmt.Sprintf("attention_%s_%d_%s", StoredName(f), d, name)
	return a, a.Shared <= shared
}

// Blocks is the most blocks of rows that tokens of seqs sequences have, group query heads
// to a KV head.
func (a Attention) Blocks(tokens, seqs, group int) int {
	return min(tokens, seqs) + tokens*group/a.Rows
}

// StoredName is a format in the names of kernels of keys and values.
func StoredName(f kernels.Format) string {
	switch f {
	case kernels.F8E4M3:
		return "e4m3"
	case kernels.F8E5M2:
		return "e5m2"
	}
	return f.String()
}
