package backend

import (
	"fmt"
	"reflect"
)

// PackedWeights are the weights of a Device in the memory where Pack wrote them. The memory lives until every
// Device that uses it and every holder has closed it. Any goroutine may call the methods.
type PackedWeights interface {
	// Info describes the weights and their users.
	Info() WeightsInfo
	// Bytes returns the size of the weights: the Weights arena of a Device's Usage. It is 0 once the memory is freed.
	Bytes() int64
	// Close drops this reference; a second call does nothing. The last user frees the memory, and has its error.
	Close() error
}

// Sharer is a Device whose weights another Device can use: see Settings.Weights. Any goroutine may call the methods.
type Sharer interface {
	// ShareWeights returns a new reference to the weights, which must all be packed. It fails with ErrUnsupported on
	// a device in a group of ranks, and with *WeightsError when they are freed or lost.
	ShareWeights() (PackedWeights, error)
	// WeightsInfo describes the weights that the Device uses.
	WeightsInfo() WeightsInfo
}

// Offloader is PackedWeights whose memory is a device's own, so that they can wait in the host's memory instead.
type Offloader interface {
	// Offload copies the weights to host memory and frees the device's. No Device may use them. A Device that is
	// opened with them copies them back, bit for bit. After an error they are where they were, unless they are lost.
	Offload() (OffloadUse, error)
}

// OffloadUse is the host memory that offloaded weights take.
type OffloadUse struct {
	Bytes  int64
	Pinned bool // false: the system had no pinned memory, and copies are slower
}

// WeightsInfo describes weights. Memory of one ID is one and the same: who adds up the Usage of several devices
// counts it once.
type WeightsInfo struct {
	ID       uint64 // differs between all weights of the process; never 0
	Backend  string
	Device   string   // "": the host
	Layout   string   // how they are packed: "avx512", "sm_90a"
	Source   [32]byte // Cache.Key of the Device that packed them
	Bytes    int64    // their size; 0: freed
	Host     int64    // bytes of host memory that they were offloaded to; 0: they are where Pack wrote them
	Devices  int      // that use them now
	Holders  int      // references of ShareWeights that are not closed
	Adapters bool     // they have slots of adapters, so that one Device at a time can use them
}

// WeightsKind is why a Device cannot use weights.
type WeightsKind uint8

// The kinds of WeightsError.
const (
	WeightsOfBackend WeightsKind = iota // they are another backend's
	WeightsOnDevice                     // they are on another device
	WeightsLayout                       // they are packed in another way, or are other weights
	WeightsSource                       // they were packed from other files
	WeightsInUse                        // they have slots of adapters, or are being moved, and have another user
	WeightsClosed                       // they are freed, or the reference is closed
	WeightsLost                         // the device that they were on has failed
)

// WeightsError refuses weights.
type WeightsError struct {
	Kind       WeightsKind
	Have, Want string // of the weights, and of the Device that is opened
	Err        error  // the cause of WeightsLost
}

// Error names both sides and the remedy.
func (e *WeightsError) Error() string {
	const load = "open the engine without them, which loads the model again"
	switch e.Kind {
	case WeightsOfBackend:
		return fmt.Sprintf("the weights in memory are of backend %s and cannot be used by backend %s: %s", e.Have, e.Want, load)
	case WeightsOnDevice:
		return fmt.Sprintf("the weights in memory are on %s and cannot be used on %s: %s", e.Have, e.Want, load)
	case WeightsLayout:
		return fmt.Sprintf("the weights in memory are packed otherwise: %s, here %s: %s", e.Have, e.Want, load)
	case WeightsSource:
		return "the weights in memory were packed from other files than the checkpoint's present ones: " + load
	case WeightsInUse:
		return fmt.Sprintf("the weights in memory %s: close the other engine first, or %s", e.Have, load)
	case WeightsLost:
		return fmt.Sprintf("the weights in memory are lost, because their device has failed (%v): %s", e.Err, load)
	}
	return "the weights in memory are closed: " + load
}

func (e *WeightsError) Unwrap() error { return e.Err }

// WeightsOf is what determines the bytes of packed weights and their offsets. A Device uses the weights of another
// only if all of it is equal.
type WeightsOf struct {
	Backend, Device string
	Layout          string   // what the backend's layout adds to Packed
	Source          [32]byte // Cache.Key
	Weights         []WeightSpec
	Packed          []Packed
	Bytes           int64 // of the arena
}

// OfWeights returns what determines the weights of a reservation.
func (r *Reservation) OfWeights(backend, device, layout string, source [32]byte) WeightsOf {
	return WeightsOf{backend, device, layout, source, r.Weights, r.Packed, r.Arenas[Weights]}
}

// Adapters reports whether there are slots of adapters, weights that Pack is not called for. One Device at a time can
// use the weights then.
func (w *WeightsOf) Adapters() bool {
	for _, s := range w.Weights {
		if s.Unloaded {
			return true
		}
	}
	return false
}

// Serves returns a *WeightsError unless a Device with the weights want can use w.
func (w *WeightsOf) Serves(want *WeightsOf) error {
	differ := func(kind WeightsKind, have, want string) error {
		return &WeightsError{Kind: kind, Have: have, Want: want}
	}
	switch {
	case w.Backend != want.Backend:
		return differ(WeightsOfBackend, w.Backend, want.Backend)
	case w.Device != want.Device:
		return differ(WeightsOnDevice, w.Device, want.Device)
	case w.Layout != want.Layout:
		return differ(WeightsLayout, w.Layout, want.Layout)
	case len(w.Weights) != len(want.Weights):
		return differ(WeightsLayout, fmt.Sprintf("%d weights", len(w.Weights)), fmt.Sprintf("%d", len(want.Weights)))
	}
	for i := range w.Weights {
		have, of := &w.Weights[i], &want.Weights[i]
		switch p, q := w.Packed[i], want.Packed[i]; {
		case have.Name != of.Name || have.Rows != of.Rows || have.Cols != of.Cols || have.Experts != of.Experts:
			return differ(WeightsLayout, shapeOf(have), shapeOf(of))
		case p != q:
			return differ(WeightsLayout, fmt.Sprintf("weight %s of %d bytes for %s", have.Name, p.Bytes, p.Kernel), fmt.Sprintf("%d bytes for %s", q.Bytes, q.Kernel))
		case !reflect.DeepEqual(have, of):
			return differ(WeightsLayout, fmt.Sprintf("weight %s", have.Name), "made of other parts or numbers")
		}
	}
	switch {
	case w.Bytes != want.Bytes:
		return differ(WeightsLayout, fmt.Sprintf("an arena of %d bytes", w.Bytes), fmt.Sprintf("of %d", want.Bytes))
	case w.Source != want.Source:
		return differ(WeightsSource, "", "")
	}
	return nil
}

func shapeOf(w *WeightSpec) string {
	s := fmt.Sprintf("weight %s of %d×%d", w.Name, w.Rows, w.Cols)
	if w.Experts > 0 {
		s += fmt.Sprintf(" × %d experts", w.Experts)
	}
	return s
}
