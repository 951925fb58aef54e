package ranks

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"vapp.dev/engine/backend"
)

// Follower is the end of the channel of a rank other than 0.
type Follower struct {
	c    *conn
	self Member
	stop chan struct{}

	frames chan frame  // of rank 0, from Agree on
	free   chan []byte // buffers of frames that were handled
	mu     sync.Mutex
	lost   error // why the group has failed
	onLost []func(error)
}

// queued is how many frames wait for Follower.Run.
const queued = 4

// Join connects to rank 0 and returns what it has decided. It tries until Options.Wait has passed. The error says for whom
// it waited, or why rank 0 refused this rank.
func Join(ctx context.Context, address string, o Options, self Member) (*Follower, Decided, error) {
	if len(o.Key) == 0 {
		return nil, Decided{}, &RankError{self.String(), noKey}
	}
	wait, cancel := context.WithTimeoutCause(ctx, o.Wait, errLate)
	defer cancel()
	c, err := dial(wait, address, o, self)
	if err != nil {
		return nil, Decided{}, err
	}
	f := &Follower{c: newConn(c, max(o.Silence, o.Wait)), self: self, stop: make(chan struct{}), frames: make(chan frame, queued), free: make(chan []byte, queued+2)}
	leave := context.AfterFunc(wait, func() { _ = c.Close() })
	d, err := f.join(o.Key)
	if !leave() && err == nil {
		err = context.Cause(wait)
	}
	if err != nil {
		_ = c.Close()
		switch cause := context.Cause(wait); {
		case cause != nil && !errors.Is(cause, errLate):
			err = cause
		case cause != nil && (errors.Is(err, net.ErrClosed) || errors.Is(err, errLate)):
			err = fmt.Errorf("it has not begun after %v (parallel.wait): another rank is missing, or something else listens there (--leader)", o.Wait)
		}
		if !strings.HasPrefix(err.Error(), self.String()) { // rank 0's errors of the rendezvous begin so
			err = fmt.Errorf("%s at rank 0 (%s): %w", self, address, err)
		}
		return nil, Decided{}, err
	}
	f.c.silence, f.c.limit = o.Silence, maxFrame
	go f.c.stayAlive(f.stop)
	return f, d, nil
}

// dial connects to rank 0, which may start later than this rank.
func dial(ctx context.Context, address string, o Options, self Member) (net.Conn, error) {
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errLate) {
				return nil, cause
			}
			return nil, &RankError{self.String(), fmt.Sprintf("rank 0 does not answer at %s after %v (parallel.wait): %v; start it, or name its address by --leader", address, o.Wait, err)}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// join is the rendezvous up to what rank 0 has decided.
func (f *Follower) join(key []byte) (d Decided, err error) {
	g := greeting{protocol, nonce(), f.self}
	if err := f.c.send(hello, encode(g)); err != nil {
		return d, err
	}
	b, err := f.c.expect(challenge)
	if err != nil {
		return d, err
	}
	var a answer
	if err := parse(b, &a); err != nil {
		return d, err
	}
	if !hmac.Equal(a.MAC, mac(key, "leader", f.self.Rank, a.Nonce, g.Nonce)) {
		return d, errKey
	}
	if err := f.c.send(proof, encode(answer{nil, mac(key, "rank", f.self.Rank, g.Nonce, a.Nonce)})); err != nil {
		return d, err
	}
	f.c.limit = memberBytes
	if b, err = f.c.expect(welcome); err != nil {
		return d, err
	}
	return d, parse(b, &d)
}

// Agree sends the digest of this rank's plan and returns when rank 0 has found those of all ranks right.
func (f *Follower) Agree(digest string) error {
	if err := f.c.send(planned, []byte(digest)); err != nil {
		return err
	}
	if _, err := f.c.expect(start); err != nil {
		return err
	}
	go f.read()
	return nil
}

// OnLost calls call once, with the error of the group, when it fails: also while this rank loads its weights.
func (f *Follower) OnLost(call func(error)) {
	f.mu.Lock()
	err := f.lost
	if err == nil {
		f.onLost = append(f.onLost, call)
	}
	f.mu.Unlock()
	if err != nil {
		call(err)
	}
}

// lose calls what OnLost has registered.
func (f *Follower) lose(err error) {
	f.mu.Lock()
	calls := f.onLost
	f.lost, f.onLost = err, nil
	f.mu.Unlock()
	for _, call := range calls {
		call(err)
	}
}

// Loaded reports to rank 0 that this rank can run steps.
func (f *Follower) Loaded() error { return f.c.send(loaded, nil) }

// AskToDrain asks rank 0 to end the group when the running requests have ended.
func (f *Follower) AskToDrain() { _ = f.c.send(drain, nil) }

// Fail reports to rank 0 why this rank leaves, which ends the group.
func (f *Follower) Fail(err error) { _ = f.c.send(failed, []byte(err.Error())) }

// Close leaves the group.
func (f *Follower) Close() {
	close(f.stop)
	_ = f.c.Close()
}

// Work is what a follower runs steps with.
type Work struct {
	Device backend.Device
	Exe    backend.Executable
	Group  backend.Group
	Places Places
	Shape  Shape
	// Encoder encodes items by Tower. nil in stages without.
	Encoder backend.Encoder
	Tower   backend.Executable
	// ReadAdapter reads an adapter's files, beside steps; PutAdapter writes what it has read to a slot. nil without
	// slots.
	ReadAdapter func(files []byte) error
	PutAdapter  func(slot int) error
}

// frame is one that the reader passes on.
type frame struct {
	kind kind
	b    []byte
	err  error
}

// Run runs the steps that rank 0 sends, on the caller's thread, until it ends the group (nil), ctx is done, or something fails.
func (f *Follower) Run(ctx context.Context, w Work) error {
	defer context.AfterFunc(ctx, func() { Abort(w.Device, w.Group, context.Cause(ctx)); _ = f.c.Close() })()
	f.OnLost(func(err error) { Abort(w.Device, w.Group, err) })
	r := run{Follower: f, Work: w, flight: make([]flight, w.Shape.Step.NumSets())}
	err := r.serve(f.frames)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		Abort(w.Device, w.Group, err)
		f.Fail(err)
		return fmt.Errorf("rank %d: %w", f.self.Rank, err)
	}
	return nil
}

// Abort ends the calls of a failed group that wait, and the steps of a device that can end early.
func Abort(dev backend.Device, g backend.Group, err error) {
	g.Abort(err)
	if d, ok := dev.(backend.Interrupter); ok {
		d.Interrupt(err)
	}
}

// read passes frames on, those of kind alive aside. Its last one is end or has an error.
func (f *Follower) read() {
	var buf []byte
	for {
		if buf == nil {
			select {
			case buf = <-f.free:
			default:
			}
		}
		k, b, err := f.c.receive(buf)
		switch {
		case err != nil:
			err = fmt.Errorf("rank 0: %w", err)
		case k == failed:
			err = fmt.Errorf("rank 0 ended the group: %s", b)
		case k == alive:
			continue
		}
		buf = nil
		if err != nil {
			f.lose(err)
		}
		select {
		case f.frames <- frame{k, b, err}:
		case <-f.stop:
			return
		}
		if err != nil || k == end {
			return
		}
	}
}

// run is the state of Follower.Run.
type run struct {
	*Follower
	Work
	flight    []flight // by set
	order     []int    // sets in flight, oldest first
	moves     []backend.PageMove
	buf       []byte
	receiving receiving
}

// afterLaunch is how long a rank gives rank 0 to send the next step, so that its device has one behind the running one, before it waits for
// the oldest step.
const afterLaunch = time.Millisecond

// serve runs frames. While rank 0 sends nothing it waits for the oldest step: the last stage at once, since rank 0 waits for its
// outputs.
func (r *run) serve(frames <-chan frame) error {
	for {
		f, ok := r.next(frames)
		if !ok {
			if err := r.wait(r.order[0]); err != nil {
				return err
			}
			continue
		}
		switch {
		case f.err != nil:
			return f.err
		case f.kind == end:
			return r.settle()
		}
		if err := r.handle(f); err != nil {
			return err
		}
		if f.kind != readAdapter { // which is read beside later frames
			select {
			case r.free <- f.b:
			default:
			}
		}
	}
}

// next returns the next frame; ok is false if it is time to wait for the oldest step.
func (r *run) next(frames <-chan frame) (f frame, ok bool) {
	if len(r.order) == 0 {
		return <-frames, true
	}
	select {
	case f = <-frames:
		return f, true
	default:
	}
	if r.prompt() {
		return f, false
	}
	t := time.NewTimer(afterLaunch)
	defer t.Stop()
	select {
	case f = <-frames:
		return f, true
	case <-t.C:
		return f, false
	}
}

// prompt reports whether rank 0 waits for this rank's outputs.
func (r *run) prompt() bool { return r.Places.Pipeline > 1 && r.self.Rank == r.Places.last() }

func (r *run) handle(f frame) (err error) {
	if len(r.receiving.rest) > 0 && f.kind != pixels {
		return &FrameError{fmt.Sprintf("frame of kind %d in the middle of an item", f.kind)}
	}
	switch f.kind {
	case item:
		return r.item(f.b)
	case pixels:
		return r.pixels(f.b)
	case launch:
		return r.launch(f.b)
	case move:
		if r.moves, err = r.Shape.readMoves(f.b, r.moves); err != nil || len(r.moves) == 0 {
			return err
		}
		return r.Device.Move(r.moves)
	case capture:
		return r.answer(r.capture(f.b))
	case readAdapter:
		if r.ReadAdapter != nil {
			go func() { _ = r.answer(r.ReadAdapter(f.b)) }() // rank 0 sends putAdapter behind the answer
			return nil
		}
	case putAdapter:
		if r.PutAdapter != nil && len(f.b) == 4 {
			return r.PutAdapter(int(binary.LittleEndian.Uint32(f.b)))
		}
	}
	return &FrameError{fmt.Sprintf("rank 0 sent a frame of kind %d with %d bytes", f.kind, len(f.b))}
}

// answer reports to rank 0 how a request ended.
func (r *run) answer(err error) error {
	why := ""
	if err != nil {
		why = err.Error()
	}
	return r.c.send(done, []byte(why))
}

func (r *run) capture(b []byte) error {
	var n [5]int
	if len(b) != 4*len(n) {
		return &FrameError{fmt.Sprintf("a graph of %d bytes", len(b))}
	}
	for i := range n {
		n[i] = int(binary.LittleEndian.Uint32(b[4*i:]))
	}
	dev, ok := r.Device.(backend.Capturer)
	if !ok || r.Shape.Step.CheckSet(n[0]) != nil || n[1] > int(backend.Decode) {
		return fmt.Errorf("capturing graphs: %w: the device has none", backend.ErrUnsupported)
	}
	return dev.Capture(r.Exe, n[0], backend.Graph{Kind: backend.GraphKind(n[1]), Tokens: n[2], Seqs: n[3], Samples: n[4]})
}

// launch fills the step buffers and starts the step.
func (r *run) launch(b []byte) error {
	number, bound, rest, err := r.Shape.readHeader(b)
	if err != nil {
		return err
	}
	if r.flight[bound.Set].running {
		if err := r.wait(bound.Set); err != nil {
			return err
		}
	}
	if err := r.Shape.read(rest, r.Device.Step(bound.Set), bound); err != nil {
		return err
	}
	if err := r.Device.Launch(r.Exe, bound); err != nil {
		return err
	}
	fl := &r.flight[bound.Set]
	fl.number, fl.binding, fl.running = number, bound, true
	if r.receiving.busy && r.receiving.set < 0 {
		r.receiving.set = bound.Set
	}
	r.order = append(r.order, bound.Set)
	return nil
}

// wait waits for the step of a set and reports what it has sampled.
func (r *run) wait(set int) error {
	if err := r.Device.Wait(set); err != nil {
		return err
	}
	if r.receiving.set == set {
		if err := r.waitItem(); err != nil {
			return err
		}
	}
	fl := &r.flight[set]
	fl.running = false
	for i, s := range r.order {
		if s == set {
			r.order = append(r.order[:i], r.order[i+1:]...)
			break
		}
	}
	s := r.Device.Step(set)
	if r.prompt() {
		r.buf = appendOutputs(r.buf[:0], fl.number, s, fl.binding)
		return r.c.send(outputs, r.buf)
	}
	if sum, ok := checksum(s, fl.binding); ok && r.Places.samples(r.self.Rank) {
		r.buf = appendSampled(r.buf[:0], fl.number, sum)
		return r.c.send(sampled, r.buf)
	}
	return nil
}

// settle waits for the steps in flight.
func (r *run) settle() error {
	for _, set := range append([]int(nil), r.order...) {
		if err := r.Device.Wait(set); err != nil {
			return err
		}
	}
	return r.waitItem()
}
