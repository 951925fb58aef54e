package backend

// A state snapshot is the recurrent state of a sequence after its first n tokens. It is kept
// for prefix caching: another sequence with the same first n tokens continues from it.
// Snapshots are pages of a class of their own. Its page table has for each sequence of a step
//
//	[0]     the page to read the state before the step's first token from; −1: the
//	        sequence's own page of class Of
//	[1+2i]  a page to store a state to, besides the own page; −1: none
//	[2+2i]  the n of that state: the state after the first n tokens; token n is in this step
//
// for i below SnapshotStores. No page occurs twice in a step's tables, except that several
// sequences may read the same page.

// SnapshotStores is how many snapshots a sequence may store in a step, SnapshotEntries the
// width of the page table.
const (
	SnapshotStores  = 2
	SnapshotEntries = 1 + 2*SnapshotStores
)

// SnapshotClass returns the class for snapshots of c, which is class i and has a State.
// Snapshots are taken at multiples of blockSize tokens.
func (c KVClass) SnapshotClass(i, blockSize int) KVClass {
	s := *c.State
	s.Copies = 1
	c.Name, c.State, c.Snapshot, c.Of = c.Name+" checkpoints", &s, true, i
	c.BlockSize, c.MaxPages = blockSize, SnapshotEntries
	return c
}

// SnapshotBytes returns the size of one snapshot: a page with one copy of the state. It is 0
// for a class without State.
func (c KVClass) SnapshotBytes() int64 {
	if c.State == nil {
		return 0
	}
	return c.SnapshotClass(0, 0).PageBytes()
}

// Snapshots returns the class that keeps snapshots of a class, or −1.
func (p *Program) Snapshots(class int) int {
	for i, c := range p.Classes {
		if c.Snapshot && c.Of == class {
			return i
		}
	}
	return -1
}

// checkSnapshots checks the entries of one sequence whose tokens are at positions from to
// to−1.
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
