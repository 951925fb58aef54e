package engine

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/kv"
)

// placement places the pages of a rank. Page n of a class is the same page on every rank of a
// model, so that one bookkeeping serves them all.
type placement struct {
	classes []backend.KVClass // of the rank's own layers
	layout  kv.Layout         // of its arena
	whole   []backend.KVClass // of the layers of all stages
	pool    kv.Layout         // of all classes; layout, if there is one stage
}

// layoutKV returns the layout of the KV arena and the KV classes of m's family, with their
// slabs and MaxPages filled in. MaxPages is the width of a page table: the pages of a sequence
// of MaxModelLen tokens. whole is m with the layers of all stages; m, if it has them.
func layoutKV(o Options, m, whole *Model) (placement, error) {
	var p placement
	var err error
	p.whole = kvClasses(o, whole)
	if p.pool, err = kv.NewLayout(specsOf(p.whole, whole)); err != nil {
		return placement{}, fmt.Errorf("model %s: %w", m.Source.Name, err)
	}
	if err := place(o, p.whole, p.pool); err != nil {
		return placement{}, err
	}
	if p.classes, p.layout = p.whole, p.pool; whole == m {
		return p, nil
	}
	p.classes = kvClasses(o, m)
	if p.layout, err = p.pool.Stage(specsOf(p.classes, m)); err != nil {
		return placement{}, fmt.Errorf("model %s: stage %d of %d: %w", m.Source.Name, m.Source.Build.Pipe.Rank, m.Source.Build.Pipe.World, err)
	}
	return p, place(o, p.classes, p.layout)
}

// specsOf returns the classes as the bookkeeping of pages has them.
func specsOf(classes []backend.KVClass, m *Model) []kv.Spec {
	specs := make([]kv.Spec, len(classes))
	for i, c := range classes {
		specs[i] = kv.Spec{Name: c.Name, Kind: kindOf(c), PageBytes: c.PageBytes(), BlockSize: c.BlockSize, Window: c.Window}
		if c.Window > 0 && !c.Chunked {
			specs[i].Ahead = m.Source.Build.Verify
		}
	}
	return specs
}

// place fills in the slabs and MaxPages of the classes of a layout.
func place(o Options, classes []backend.KVClass, layout kv.Layout) error {
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
			return fmt.Errorf("kv class %s: page tables of %d sequences of %d pages exceed 2^31 entries; lower maxNumSeqs or maxModelLen, or raise blockSize",
				classes[i].Name, o.MaxNumSeqs, n)
		}
	}
	return nil
}

// allStages returns m with the layers of all pipeline stages; m itself, if it has them.
func (m *Model) allStages() (*Model, error) {
	b := m.Source.Build
	if b.Pipe.World <= 1 {
		return m, nil
	}
	b.Pipe = backend.Whole
	return m.With(b)
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
