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

// AttentionKeys is what the positions of a split are a multiple of.
const AttentionKeys = 64

// ChooseAttention is the kernel for keys and values stored as f, heads of dim, a multiple
// of 8 up to 512, on a device whose blocks may have shared bytes; many: for prompts. ok is
// false where there is none: every device that CUDA 13 knows has one for few rows, which
// takes any number of them.
func ChooseAttention(f kernels.Format, dim int, many bool, shared int) (a Attention, ok bool) {
	if n, ok := Store(f); !ok || n == 0 || dim <= 0 || dim > 512 || dim%8 != 0 {
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
	name := "few"
	if many {
		a.Rows, a.Threads, name = 64, 128, "many"
	}
	key := max(d*(keys+8), keys*(d+8))
	a.Shared = 2 * (a.Rows*(d+8) + stages*(key+keys*(v+8)))
	a.Kernel = fmt.Sprintf("attention_%s_%d_%s", storeName(f), d, name)
	return a, a.Shared <= shared
}

// Blocks is the most blocks of rows that tokens of seqs sequences have, group query heads
// to a KV head.
func (a Attention) Blocks(tokens, seqs, group int) int {
	return min(tokens, seqs) + tokens*group/a.Rows
}

// storeName is a format in the names of kernels of keys and values.
func storeName(f kernels.Format) string {
	switch f {
	case kernels.F8E4M3:
		return "e4m3"
	case kernels.F8E5M2:
		return "e5m2"
	}
	return f.String()
}
