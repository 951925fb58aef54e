package cuda

// ExpertBlocks is the most blocks of rows that picks of experts fill, when each expert's
// rows begin a block: what the grid and the tables of experts_order are made for.
func ExpertBlocks(picks, experts, block int) int {
	return picks/block + min(picks, experts)
}
