// Package turns lets engines take turns on what they share: a device, or the cores of a machine.
// Under load each gets the same share of the time; an engine that is alone never waits. It must
// not know what a turn is used for. Start reading at Device.
//
// Every seat has a virtual time, the sum of its turns. Of the seats that wait, the one with the
// least is next. A seat that comes back after a rest starts at the virtual time of the device, so
// that a rest gives no claim on later time (start-time fair queueing).
package turns

import (
	"sync"
	"time"
)

// Device is what is shared. It is safe for concurrent use.
type Device struct {
	now func() time.Time

	mu      sync.Mutex
	holder  *Seat
	began   time.Time     // of the part of the holder's turn that is not charged
	virtual time.Duration // of the step that runs, at its begin
	waiting []*Seat
}

// New returns a device without seats. now is its clock; nil: time.Now.
func New(now func() time.Time) *Device {
	if now == nil {
		now = time.Now
	}
	return &Device{now: now}
}

// Seat is an engine's place at a device. One goroutine uses it.
type Seat struct {
	d       *Device
	virtual time.Duration
	turn    chan struct{} // capacity 1
}

// Seat returns a new place at the device.
func (d *Device) Seat() *Seat { return &Seat{d: d, turn: make(chan struct{}, 1)} }

// Enter waits for the seat's turn. While no other seat is in a turn it returns at once. Each
// Enter needs a Leave.
func (s *Seat) Enter() {
	d := s.d
	d.mu.Lock()
	s.virtual = max(s.virtual, d.virtual)
	if d.holder == nil {
		d.begin(s)
		d.virtual = s.virtual
		d.mu.Unlock()
		return
	}
	d.waiting = append(d.waiting, s)
	d.mu.Unlock()
	<-s.turn
}

// Wanted counts the time of the turn so far and reports whether another seat waits that has had
// less. The engine then ends its turn when its step has ended. It is called before each step of a
// turn but the first.
func (s *Seat) Wanted() bool {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	s.charge()
	for _, other := range d.waiting {
		if other.virtual < s.virtual {
			return true
		}
	}
	d.virtual = max(d.virtual, s.virtual)
	return false
}

// charge adds the time since the turn began, or since the last charge, to the holder's virtual
// time. It needs the lock.
func (s *Seat) charge() {
	now := s.d.now()
	s.virtual += max(0, now.Sub(s.d.began))
	s.d.began = now
}

// Leave ends the seat's turn and begins that of the next one.
func (s *Seat) Leave() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.charge()
	s.d.next()
}

// Yield ends the seat's turn and waits for its next one. In contrast to Leave and Enter, the seat
// is under load in between.
func (s *Seat) Yield() {
	d := s.d
	d.mu.Lock()
	s.charge()
	d.waiting = append(d.waiting, s)
	d.next()
	d.mu.Unlock()
	<-s.turn
}

// next begins the turn of the seat that has had the least time, the one that waits longest of
// several. It needs the lock.
func (d *Device) next() {
	d.virtual = max(d.virtual, d.least())
	d.holder = nil
	for i, s := range d.waiting {
		if s.virtual <= d.virtual {
			d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
			d.begin(s)
			s.turn <- struct{}{}
			return
		}
	}
}

// least returns the least virtual time of the seats that wait, or the holder's if none does.
func (d *Device) least() time.Duration {
	if len(d.waiting) == 0 {
		return d.holder.virtual
	}
	least := d.waiting[0].virtual
	for _, s := range d.waiting {
		least = min(least, s.virtual)
	}
	return least
}

// begin begins a turn. It needs the lock.
func (d *Device) begin(s *Seat) { d.holder, d.began = s, d.now() }
