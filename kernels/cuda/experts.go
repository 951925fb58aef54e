package cuda

// ExpertBlocks is the most blocks of rows that picks of experts fill, when each expert's
// rows begin a block: what the grid and the tables of experts_order are made for.
func ExpertBlocks(picks, experts, block int) int {
	return picks/block + min(picks, experts)
}

// ChooseExperts is the kernel of experts whose matrices are F32, row by row as a checkpoint has
// them, for so many rows of each; X is read as it lies, and nothing is split.
func ChooseExperts(rows int) Linear {
	if rows <= FewRows {
		return Linear{Kernel: "experts_f32_4", Rows: 4, Panels: 1, Threads: 256}
	}
	return Linear{Kernel: "experts_f32_64", Rows: 64, Panels: 8, Threads: 128}
}
