package engine

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/kv"
)

// layoutKV returns the layout of the KV arena and the KV classes of m's family, with their
// slabs and MaxPages filled in. MaxPages is the width of a page table: the pages of a sequence
// of MaxModelLen tokens.
func layoutKV(o Options, m *Model) ([]backend.KVClass, kv.Layout, error) {
	classes := kvClasses(o, m)
	specs := make([]kv.Spec, len(classes))
	for i, c := range classes {
		specs[i] = kv.Spec{Name: c.Name, Kind: kindOf(c), PageBytes: c.PageBytes(), BlockSize: c.BlockSize, Window: c.Window}
		if c.Window > 0 && !c.Chunked {
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
			classes[i].MaxPages = kv.SnapshotEntries
		}
		if n := classes[i].MaxPages; o.MaxNumSeqs > 0 && n > math.MaxInt32/o.MaxNumSeqs {
			return nil, kv.Layout{}, fmt.Errorf("kv class %s: page tables of %d sequences of %d pages exceed 2^31 entries; lower maxNumSeqs or maxModelLen, or raise blockSize",
				classes[i].Name, o.MaxNumSeqs, n)
		}
	}
	return classes, layout, nil
}

// kvClasses returns the family's KV classes and, if sequences have a recurrent state and
// prefix caching is on, one more for snapshots of that state.
func kvClasses(o Options, m *Model) []backend.KVClass {
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

// Both packages must agree on the width of a page table of state snapshots.
var _ = [1]struct{}{}[kv.SnapshotEntries-backend.SnapshotEntries]

// kindOf returns the kv.Kind of a class.
func kindOf(c backend.KVClass) kv.Kind {
	switch {
	case c.Snapshot:
		return kv.Snapshot
	case c.State != nil:
		return kv.State
	case c.Chunked:
		return kv.Chunk
	case c.Window > 0:
		return kv.Window
	}
	return kv.Full
}
