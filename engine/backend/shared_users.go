package backend

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// weightsIDs is the last WeightsInfo.ID.
var weightsIDs atomic.Uint64

// SharedWeights counts the users of weights, for a backend: devices and references. The memory is the backend's.
type SharedWeights struct {
	id   uint64
	of   WeightsOf
	free func() error // called once, by the last user

	mu               sync.Mutex
	devices, holders int
	host             int64
	moving           bool // Offload runs
	gone             *WeightsError
}

// NewSharedWeights counts the users of a Device's weights, which is the first one. free frees the memory.
func NewSharedWeights(of WeightsOf, free func() error) *SharedWeights {
	return &SharedWeights{id: weightsIDs.Add(1), of: of, free: free, devices: 1}
}

// Info implements PackedWeights and Sharer.
func (s *SharedWeights) Info() WeightsInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := WeightsInfo{ID: s.id, Backend: s.of.Backend, Device: s.of.Device, Layout: s.of.Layout, Source: s.of.Source, Devices: s.devices, Holders: s.holders, Adapters: s.of.Adapters()}
	if s.gone == nil {
		i.Bytes, i.Host = s.of.Bytes, s.host
	}
	return i
}

// Join counts a Device with the weights want as a user, if it can use these.
func (s *SharedWeights) Join(want WeightsOf) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		return s.gone
	}
	if err := s.of.Serves(&want); err != nil {
		return err
	}
	switch {
	case s.moving:
		return &WeightsError{Kind: WeightsInUse, Have: "are being copied to host memory"}
	case s.devices > 0 && s.of.Adapters():
		return &WeightsError{Kind: WeightsInUse, Have: "have slots of adapters, which one engine at a time can fill"}
	}
	s.devices++
	return nil
}

// Leave ends the use by a Device.
func (s *SharedWeights) Leave() error { return s.drop(&s.devices) }

// Hold returns a new reference.
func (s *SharedWeights) Hold() (*WeightsHolder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		return nil, s.gone
	}
	s.holders++
	return &WeightsHolder{of: s}, nil
}

// drop ends one use, and frees the memory if it was the last one.
func (s *SharedWeights) drop(count *int) error {
	s.mu.Lock()
	*count--
	last := s.devices+s.holders == 0 && s.gone == nil
	if last {
		s.gone = &WeightsError{Kind: WeightsClosed}
	}
	s.mu.Unlock()
	if last {
		return s.free()
	}
	return nil
}

// Lose says that the memory is unusable, because its device failed with err; nothing frees it any more. It returns
// false if that, or the last Close, came before.
func (s *SharedWeights) Lose(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		return false
	}
	s.gone = &WeightsError{Kind: WeightsLost, Err: err}
	return true
}

// Restored says that the weights are in the device's memory again.
func (s *SharedWeights) Restored() {
	s.mu.Lock()
	s.host = 0
	s.mu.Unlock()
}

// Offload calls move, which returns the bytes of host memory that it took, while no Device uses the weights.
func (s *SharedWeights) Offload(move func() (int64, error)) error {
	s.mu.Lock()
	switch {
	case s.gone != nil:
		defer s.mu.Unlock()
		return s.gone
	case s.moving || s.devices > 0:
		defer s.mu.Unlock()
		return &WeightsError{Kind: WeightsInUse, Have: "cannot be moved to host memory while an engine uses them"}
	}
	s.moving = true
	s.holders++ // also if the caller's reference is closed meanwhile
	s.mu.Unlock()
	n, err := move()
	s.mu.Lock()
	if s.moving = false; err == nil {
		s.host = n
	}
	s.mu.Unlock()
	if drop := s.drop(&s.holders); err == nil {
		err = drop
	}
	return err
}

// WeightsHolder is a reference to weights. A backend's PackedWeights embed it.
type WeightsHolder struct {
	of     *SharedWeights
	closed atomic.Bool
}

// Info implements PackedWeights.
func (h *WeightsHolder) Info() WeightsInfo { return h.of.Info() }

// Bytes implements PackedWeights.
func (h *WeightsHolder) Bytes() int64 { return h.Info().Bytes }

// JoinWeights counts a Device with the weights of as a user of the settings' weights, a backend's own type W.
func JoinWeights[W interface {
	PackedWeights
	Join(WeightsOf) error
}](s Settings, of WeightsOf) (W, error) {
	w, ok := s.Weights.(W)
	switch {
	case s.Group != nil:
		return w, fmt.Errorf("weights of another device: %w: the model has several ranks", ErrUnsupported)
	case !ok:
		return w, &WeightsError{Kind: WeightsOfBackend, Have: s.Weights.Info().Backend, Want: of.Backend}
	}
	return w, w.Join(of)
}

// Join is SharedWeights.Join, if the reference is open.
func (h *WeightsHolder) Join(of WeightsOf) error {
	if err := h.Open(); err != nil {
		return err
	}
	return h.of.Join(of)
}

// Open returns a *WeightsError if the reference is closed.
func (h *WeightsHolder) Open() error {
	if h.closed.Load() {
		return &WeightsError{Kind: WeightsClosed}
	}
	return nil
}

// Close implements PackedWeights.
func (h *WeightsHolder) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	return h.of.drop(&h.of.holders)
}
