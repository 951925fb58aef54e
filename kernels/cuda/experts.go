package cuda

// ExpertBlocks returns the largest number of blocks of rows for picks of experts, if each
// expert's rows begin a block: the size of the grid and of the tables of experts_order.
func ExpertBlocks(picks, experts, block int) int {
	return picks/block + min(picks, experts)
}

// ChooseExperts returns the kernel for experts with F32 matrices, stored row by row as in a
// checkpoint, and that many rows for each expert. X is read in place, and nothing is split.
func ChooseExperts(rows int) Linear {
	if rows <= DecodeRows {
		return Linear{Kernel: "experts_f32_4", Rows: 4, Panels: 1, Threads: 256}
	}
	return Linear{Kernel: "experts_f32_64", Rows: 64, Panels: 8, Threads: 128}
}
