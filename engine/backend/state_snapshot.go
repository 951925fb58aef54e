package backend

// A checkpoint is the recurrent state of a sequence after its first n tokens, kept so
// that other sequences with these tokens begin behind them. It lies in a page of a class
// of its own, whose page table has for each sequence of a step
//
//	[0]     the page that the state before the step's first token is read from, in place
//	        of the sequence's own page of class Of; −1: its own page
//	[1+2i]  a page that a state is stored to, besides the own page; −1: none
//	[2+2i]  the n whose state it is: of the first n tokens, the n-th in this step
//
// for i below SnapshotStores. The pages of a step's tables differ, but that several
// sequences may begin from one.

// SnapshotStores is how many checkpoints a sequence leaves in a step, SnapshotEntries
// the width of the page table that says so.
const (
	SnapshotStores  = 2
	SnapshotEntries = 1 + 2*SnapshotStores
)

// SnapshotClass is the class that keeps checkpoints of c, which is class i and has a
// State. Its blocks are what positions of checkpoints are multiples of.
func (c KVClass) SnapshotClass(i, blockSize int) KVClass {
	s := *c.State
	s.Copies = 1
	c.Name, c.State, c.Snapshot, c.Of = c.Name+" checkpoints", &s, true, i
	c.BlockSize, c.MaxPages = blockSize, SnapshotEntries
	return c
}

// SnapshotBytes is what the state of a sequence takes at one position: a page of one
// copy. 0 where the class has no State.
func (c KVClass) SnapshotBytes() int64 {
	if c.State == nil {
		return 0
	}
	return c.SnapshotClass(0, 0).PageBytes()
}

// Snapshots is the class that keeps checkpoints of a class, −1 where none does.
func (p *Program) Snapshots(class int) int {
	for i, c := range p.Classes {
		if c.Snapshot && c.Of == class {
			return i
		}
	}
	return -1
}

// checkSnapshots looks at the entries of one sequence, whose tokens are at positions
// from to to−1.
func (s *Step) checkSnapshots(c KVClass, table []int32, seq, from, to int, kvBytes int64) error {
	inside := func(page int32) bool { return c.Address(page)+c.PageBytes() <= kvBytes }
	wrong := func(why string, page int32) error {
		return stepError("Pages", "sequence %d %s page %d of class %s", seq, why, page, c.Name)
	}
	if len(table) < SnapshotEntries {
		return stepError("Pages", "class %s has a table of %d entries, not %d", c.Name, len(table), SnapshotEntries)
	}
	if n := table[0]; n >= 0 && (from == 0 || !inside(n)) {
		return wrong("begins from", n)
	}
	for i := 1; i < SnapshotEntries; i += 2 {
		n, after := table[i], int(table[i+1])
		if n >= 0 && (!inside(n) || after <= from || after > to || n == table[0]) {
			return wrong("stores to", n)
		}
	}
	return nil
}
