package cuda

import "vapp.dev/kernels"

// AdaptArgs: adapt_down_, adapt_down_many_, adapt_up_ and adapt_up_many_ with the format of A and B.
type AdaptArgs struct {
	X, Mid, Y, A, B, Slots, Tokens Ptr
	Rows, In, Out, Rank, Modules   int32
	Ends                           [3]int32
}

// AdaptThreads is the most threads of a block of the kernels of adapters.
const AdaptThreads = 256

// Adapt are the two kernels of low-rank adapters for a number of rows.
type Adapt struct {
	Down, Up string
	DownRows int // rows of a block of Down
	DownMids int // numbers that a warp of Down computes for each row
	UpRows   int // rows of a block of Up; it has a thread for each column
}

// ChooseAdapt returns the kernels for adapters stored as f. many is true where rows of one adapter follow
// each other: a block then reads its matrices once for several rows. The sums are the same.
func ChooseAdapt(f kernels.Format, many bool) Adapt {
	if many {
		return Adapt{"adapt_down_many_" + f.String(), "adapt_up_many_" + f.String(), 4, 4, 8}
	}
	return Adapt{"adapt_down_" + f.String(), "adapt_up_" + f.String(), 1, 1, 1}
}

// DownWarps returns the warps of a block of Down, and the blocks that share a row's mids numbers.
func (a Adapt) DownWarps(mids int) (warps, blocks int) {
	units := (mids + a.DownMids - 1) / a.DownMids
	warps = min(units, AdaptThreads/32)
	return warps, (units + warps - 1) / warps
}

func adaptKernels() []Kernel {
	var out []Kernel
	for _, many := range []bool{false, true} {
		for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
			k := ChooseAdapt(f, many)
			down, up := "(4 + format·modules·rank)·rows·in", "(8 + format·rank)·rows·out"
			if many {
				down, up = "(4·modules·rank/4 + format·modules·rank/4)·rows·in", "(8 + format·rank/8)·rows·out"
			}
			out = append(out,
				Kernel{k.Down, "adapt", f.String(), "adapt", sizeOf[AdaptArgs](), AdaptThreads, 0, down, "2·rows·in·modules·rank", "TestAdapt"},
				Kernel{k.Up, "adapt", f.String(), "adapt", sizeOf[AdaptArgs](), AdaptThreads, 0, up, "2·rows·out·rank", "TestAdapt"})
		}
	}
	return out
}
