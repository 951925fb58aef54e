package kv

// Table holds the pages of one sequence, in every class. A Table is made once
// per sequence and survives Free, so that the block hashes it has computed
// are not computed again when the sequence comes back.
type Table struct {
	salt  string
	pages [][]int32 // per class; −1 where a block has no page
	chain [][]Key   // per class, of full blocks; shared by classes of one block size
	seal  []int     // per class: blocks below it were sealed or have no page
}

// Pages is the page table of a class: one page number a block, −1 where the
// window has left the block behind. It is valid until the Pool changes.
func (t *Table) Pages(class int) []int32 { return t.pages[class] }

// Key names the content of a block: its tokens, all tokens before it and the
// salt of its sequence. 128 bits of SHA-256.
type Key [16]byte
