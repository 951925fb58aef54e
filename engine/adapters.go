package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
)

// AdapterKind is what is wrong with an adapter.
type AdapterKind uint8

// The kinds of AdapterError.
const (
	AdapterUnknown     AdapterKind = iota // no adapter has the name
	AdapterExists                         // an adapter of the name is loaded
	AdapterFull                           // every slot has an adapter
	AdapterInvalid                        // its files are missing, damaged or do not fit together
	AdapterUnsupported                    // its form, its modules or this engine's build
)

// AdapterError refuses an adapter, or a request for one.
type AdapterError struct {
	Name   string
	Reason string
	Kind   AdapterKind
	Err    error // the cause; may be nil
}

func (e *AdapterError) Error() string { return fmt.Sprintf("adapter %q: %s", e.Name, e.Reason) }

// Unwrap returns the cause.
func (e *AdapterError) Unwrap() error { return e.Err }

// AdapterInfo is a loaded adapter.
type AdapterInfo struct {
	Name, Path       string
	Rank, Slot       int
	Running, Waiting int // sequences
}

// adapter is an adapter in a slot. A nil adapter is the model alone.
type adapter struct {
	name, path string
	rank, slot int
	generation int // differs between all loads of an engine

	all     atomic.Int64  // sequences submitted and not ended
	started atomic.Int64  // those of them that were scheduled
	closed  bool          // takes no more requests; under adapters.mu
	idle    chan struct{} // closed when closed and no sequence remains
}

// number returns sched.Spec.Adapter.
func (a *adapter) number() int32 {
	if a == nil {
		return 0
	}
	return int32(a.slot + 1)
}

// named returns the adapter's name, "" for the model alone.
func (a *adapter) named() string {
	if a == nil {
		return ""
	}
	return a.name
}

// salt returns the salt of the prefix cache for a request's salt: it differs between all loads of
// adapters and from that of the model alone.
func (a *adapter) salt(of string) string {
	switch {
	case a != nil:
		return "\x00" + strconv.Itoa(a.generation) + " " + a.name + "\x00" + of
	case strings.HasPrefix(of, "\x00"):
		return "\x00\x00" + of
	}
	return of
}

// start counts a sequence as scheduled.
func (a *adapter) start() {
	if a != nil {
		a.started.Add(1)
	}
}

// end counts the sequence of c as ended.
func (a *adapter) end(c *choice) {
	if a == nil {
		return
	}
	if !c.stats.Scheduled.IsZero() {
		a.started.Add(-1)
	}
	a.drop(1)
}

// drop takes back n of the sequences that take counted.
func (a *adapter) drop(n int) {
	if a != nil && a.all.Add(-int64(n)) == 0 {
		select {
		case a.idle <- struct{}{}:
		default:
		}
	}
}

// adapters are the slots of an engine.
type adapters struct {
	family models.Adaptable // nil: there are no slots
	rank   int

	load   sync.Mutex // held while an adapter is loaded or unloaded
	mu     sync.Mutex // guards the following
	byName map[string]*adapter
	slots  []bool // slot → taken
	loads  int
}

// open makes the slots of a model.
func (s *adapters) open(m *Model) {
	lora := m.Source.Build.LoRA
	if f, ok := m.Family.(models.Adaptable); ok && lora.Slots > 0 {
		s.family, s.rank, s.slots, s.byName = f, lora.Rank, make([]bool, lora.Slots), map[string]*adapter{}
	}
}

// take returns the adapter of a name and counts n sequences for it.
func (s *adapters) take(name string, n int) (*adapter, error) {
	if name == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.byName[name]
	if a == nil || a.closed {
		return nil, &AdapterError{Name: name, Reason: "it is not loaded", Kind: AdapterUnknown}
	}
	a.all.Add(int64(n))
	return a, nil
}

// free takes a free slot; false if there is none.
func (s *adapters) free() (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.slots, false)
	if i >= 0 {
		s.slots[i] = true
	}
	return i, i >= 0
}

// release gives a slot back.
func (s *adapters) release(slot int) {
	s.mu.Lock()
	s.slots[slot] = false
	s.mu.Unlock()
}

// get returns the adapter of a name, nil if it is not loaded.
func (s *adapters) get(name string) *adapter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// Adapters lists the loaded adapters by name.
func (e *Engine) Adapters() []AdapterInfo {
	s := &e.adapters
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []AdapterInfo{}
	for _, a := range s.byName {
		started := a.started.Load()
		out = append(out, AdapterInfo{Name: a.name, Path: a.path, Rank: a.rank, Slot: a.slot, Running: int(started), Waiting: int(max(0, a.all.Load()-started))})
	}
	slices.SortFunc(out, func(a, b AdapterInfo) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// AdapterSlots returns how many adapters can be loaded at a time; 0: the engine takes none.
func (e *Engine) AdapterSlots() int { return len(e.adapters.slots) }

// LoadAdapter loads the adapter in folder dir (PEFT's files) under a name. With inPlace it replaces a loaded
// adapter of that name; requests that run keep the old one. If every slot is taken, the replaced
// adapter first takes no more requests and its running ones end. The error is an *AdapterError,
// ErrClosed or ctx's; the adapters that were loaded before then stay, but for one whose slot was
// to be overwritten.
func (e *Engine) LoadAdapter(ctx context.Context, name, dir string, inPlace bool) error {
	s := &e.adapters
	refuse := func(kind AdapterKind, reason string) error {
		return &AdapterError{Name: name, Reason: reason, Kind: kind}
	}
	switch {
	case s.family == nil:
		return refuse(AdapterUnsupported, "this server has no slots for adapters; set lora.maxLoras and lora.maxRank")
	case name == "":
		return refuse(AdapterInvalid, "it has no name")
	}
	s.load.Lock()
	defer s.load.Unlock()
	old := s.get(name)
	if old != nil && !inPlace {
		return refuse(AdapterExists, "an adapter of this name is loaded; unload it first, or load in place")
	}
	a, writes, err := e.readAdapter(name, dir)
	if err != nil {
		return err
	}
	if d, ok := e.all.(rankAdapters); ok {
		if err := d.ReadAdapter(adapterFiles{name, dir}); err != nil {
			return &AdapterError{Name: name, Reason: err.Error(), Kind: AdapterInvalid, Err: err}
		}
	}
	slot, ok := s.free()
	switch {
	case !ok && old == nil:
		return refuse(AdapterFull, fmt.Sprintf("all %d slots have adapters; unload one, or raise lora.maxLoras", len(s.slots)))
	case !ok:
		if err := e.retireAdapter(ctx, old); err != nil {
			return err
		}
		slot, old = old.slot, nil
	}
	if err := e.writeAdapter(ctx, slot, writes); err != nil {
		s.release(slot)
		return err
	}
	s.mu.Lock()
	a.slot, a.generation = slot, s.loads
	s.loads++
	s.byName[name] = a
	if old != nil {
		old.closed = true
	}
	s.mu.Unlock()
	if old != nil {
		go e.freeSlot(old)
	}
	return nil
}

// UnloadAdapter removes an adapter. New requests for it are refused at once; UnloadAdapter returns
// when the running ones have ended. If ctx is done first, the adapter takes requests again. The
// error is an *AdapterError, ErrClosed or ctx's.
func (e *Engine) UnloadAdapter(ctx context.Context, name string) error {
	s := &e.adapters
	s.load.Lock()
	defer s.load.Unlock()
	a := s.get(name)
	if a == nil {
		return &AdapterError{Name: name, Reason: "it is not loaded", Kind: AdapterUnknown}
	}
	if err := e.retireAdapter(ctx, a); err != nil {
		return err
	}
	s.release(a.slot)
	return nil
}

// retireAdapter refuses new requests for a, waits until the others have ended, and forgets a. Its
// slot stays taken. If ctx is done first, a takes requests again.
func (e *Engine) retireAdapter(ctx context.Context, a *adapter) error {
	s := &e.adapters
	s.mu.Lock()
	a.closed = true
	s.mu.Unlock()
	err := e.waitIdle(ctx, a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		a.closed = false
		return err
	}
	delete(s.byName, a.name)
	return nil
}

// freeSlot releases the slot of a replaced adapter when its requests have ended.
func (e *Engine) freeSlot(a *adapter) {
	if e.waitIdle(context.Background(), a) == nil {
		e.adapters.release(a.slot)
	}
}

// waitIdle waits until no sequence of a closed adapter remains.
func (e *Engine) waitIdle(ctx context.Context, a *adapter) error {
	for a.all.Load() > 0 {
		select {
		case <-a.idle:
		case <-e.done:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// rankAdapters is a device that reads and writes adapters on the other ranks too, each its own part.
type rankAdapters interface {
	ReadAdapter(files any) error
	PutAdapter(slot int) error
}

// slotRows are rows of a weight, relative to those of a slot.
type slotRows struct {
	weight backend.WeightID
	rows   int // of a slot
	data   []byte
}

// readAdapter reads an adapter and computes the rows of its slot.
func (e *Engine) readAdapter(name, dir string) (*adapter, []slotRows, error) {
	fail := func(err error) error {
		kind := AdapterInvalid
		var unsupported *models.UnsupportedError
		if errors.As(err, &unsupported) || errors.Is(err, checkpoint.ErrAdapterForm) {
			kind = AdapterUnsupported
		}
		return &AdapterError{Name: name, Reason: err.Error(), Kind: kind, Err: err}
	}
	files, err := checkpoint.ReadAdapter(dir, e.adapters.rank)
	if err != nil {
		return nil, nil, fail(err)
	}
	defer files.Close()
	var writes []slotRows
	// The first row of slot 1 is the number of rows of a slot.
	err = e.adapters.family.PlaceAdapter(files, 1, func(w backend.WeightID, row0 int, data []byte) error {
		writes = append(writes, slotRows{w, row0, data})
		return nil
	})
	if err != nil {
		return nil, nil, fail(err)
	}
	return &adapter{name: name, path: dir, rank: files.Rank, idle: make(chan struct{}, 1)}, writes, nil
}

// writeAdapter writes the rows of a slot between two steps. It waits for the file of packed weights, whose
// bytes must not change while it is written.
func (e *Engine) writeAdapter(ctx context.Context, slot int, writes []slotRows) error {
	if done := e.cache.done; done != nil {
		select {
		case <-done:
		case <-e.done:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	dev, ok := e.dev.(backend.AdapterWriter)
	if !ok {
		return fmt.Errorf("the device cannot write adapters: %w", backend.ErrUnsupported)
	}
	answer := make(chan error, 1)
	err := e.in.put(message{do: func(*loop) {
		err := putRows(dev, writes, slot)
		if d, ok := e.all.(rankAdapters); ok && err == nil {
			err = d.PutAdapter(slot)
		}
		answer <- err
	}})
	if err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-e.done:
		return ErrClosed
	}
}
