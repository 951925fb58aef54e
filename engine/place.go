package engine

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/kv"
)

// placeKV cuts the KV arena: the classes of m's family with slabs and the width
// of their page tables filled in (pages that a sequence of MaxModelLen tokens
// holds), and the layout that the pool will follow.
func placeKV(o Options, m *Model) ([]backend.KVClass, kv.Layout, error) {
	classes := classesOf(o, m)
	specs := make([]kv.Spec, len(classes))
	for i, c := range classes {
		specs[i] = kv.Spec{Name: c.Name, Kind: kindOf(c), PageBytes: c.PageBytes(), BlockSize: c.BlockSize, Window: c.Window}
		if c.Window > 0 {
			specs[i].Ahead = m.Source.Build.Verify
		}
	}
	layout, err := kv.NewLayout(specs)
	if err != nil {
		return nil, kv.Layout{}, fmt.Errorf("model %s: %w", m.Source.Name, err)
	}
	for i := range classes {
		classes[i].SlabBytes = layout.SlabBytes
		classes[i].PagesPerSlab = layout.PagesPerSlab[i]
		classes[i].MaxPages = layout.SequencePages(i, o.MaxModelLen)
		if classes[i].Window > 0 {
			classes[i].MaxPages *= 2
		}
		if classes[i].Snapshot {
			classes[i].MaxPages = kv.Entries
		}
		if n := classes[i].MaxPages; o.MaxNumSeqs > 0 && n > math.MaxInt32/o.MaxNumSeqs {
			return nil, kv.Layout{}, fmt.Errorf("kv class %s: page tables of %d sequences of %d pages exceed 2^31 entries; lower maxNumSeqs or maxModelLen, or raise blockSize",
				classes[i].Name, o.MaxNumSeqs, n)
		}
	}
	return classes, layout, nil
}

// classesOf are the family's classes and, where sequences have a state and prefixes are
// reused, one more for the states' checkpoints.
func classesOf(o Options, m *Model) []backend.KVClass {
	classes := m.Family.Classes(o.BlockSize, o.KVFormat)
	if !o.PrefixCaching {
		return classes
	}
	for i, c := range classes {
		if c.State != nil {
			return append(classes, c.SnapshotClass(i, o.BlockSize))
		}
	}
	return classes
}

// A page table of checkpoints is the same for the books and for devices.
var _ = [1]struct{}{}[kv.Entries-backend.SnapshotEntries]

// kindOf is how a class grows with its sequence.
func kindOf(c backend.KVClass) kv.Kind {
	switch {
	case c.Snapshot:
		return kv.Checkpoint
	case c.State != nil:
		return kv.State
	case c.Window > 0:
		return kv.Window
	}
	return kv.Full
}
