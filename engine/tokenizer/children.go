package tokenizer

import (
	"context"
	"errors"
	"time"

	"vapp.dev/engine/fairqueue"
)

// Children limits the child processes of a server: one for small jobs and one for large jobs at a
// time. Clients take turns at each (package fairqueue); the context identifies the client.
type Children struct{ small, large *fairqueue.Gate }

// NewChildren returns Children without running or waiting jobs.
func NewChildren() *Children {
	return &Children{fairqueue.NewGate(1, maxWaiting), fairqueue.NewGate(1, maxWaiting)}
}

// Idle reports whether no child runs and no job waits for one.
func (c *Children) Idle() bool { return c.small.Idle(1) && c.large.Idle(1) }

// limits are the resource limits of a child.
type limits struct {
	memory int64         // private bytes beyond those of an idle child
	stack  int64         // for a compiling thread; part of memory
	cpu    time.Duration // processor time; 0: Sandbox.Time alone
}

// Of 224 published schemas of 30 to 256 KiB (SchemaStore), those that compile at all need at
// most 48 MiB and a second; a schema of some properties needs 2 MiB and 20 ms.
var (
	smallChild = limits{memory: 24 << 20, stack: 8 << 20, cpu: 300 * time.Millisecond}
	largeChild = limits{memory: 64 << 20, stack: 16 << 20}
)

const (
	bareChild  = 8 << 20          // private memory of an idle child: 4 MiB, with a margin
	maxWaiting = 128              // jobs waiting for each of the two children
	waitTime   = 10 * time.Second // for a slot
	smallCost  = 64 << 10         // jobs with a higher cost start as large
)

// ChildBytes returns the maximum memory of the child for small jobs and of the other one.
func ChildBytes() (small, large int64) {
	return bareChild + smallChild.memory, bareChild + largeChild.memory
}

// processChildren is used by Sandboxes without Children.
var processChildren = NewChildren()

// childSlot is the right to run one child.
type childSlot struct {
	of    Sandbox
	cost  int
	small bool
	leave func()
}

// acquire waits for a slot for a job; cost estimates its work, in bytes of source or a similar
// unit.
func (s Sandbox) acquire(ctx context.Context, cost int) (*childSlot, error) {
	t := &childSlot{of: s.orDefault(), cost: cost, small: cost <= smallCost}
	return t, t.wait(ctx)
}

func (t *childSlot) wait(ctx context.Context) (err error) {
	busy := &TemplateError{KindBusy, 0, "too many templates and grammars wait for a child process"}
	ctx, cancel := context.WithTimeoutCause(ctx, waitTime, busy)
	defer cancel()
	gate := t.of.Children.large
	if t.small {
		gate = t.of.Children.small
	}
	if t.leave, err = gate.Enter(ctx, t.cost); errors.Is(err, fairqueue.ErrFull) {
		return busy
	}
	return err
}

// release releases the slot.
func (t *childSlot) release() {
	if t.leave != nil {
		t.leave()
	}
}

// do runs a child. A job that exceeds the small child's limits waits for the large child and starts
// again. do calls unneeded before each start and returns an empty reply if it is true.
func (t *childSlot) do(ctx context.Context, c sandboxCall, unneeded func() bool) (sandboxReply, error) {
	for {
		if unneeded() {
			return sandboxReply{}, nil
		}
		l := largeChild
		if t.small {
			l = smallChild
		}
		r, err := t.of.attempt(ctx, l, c)
		if !t.small || !overLimits(err) {
			return r, err
		}
		t.leave()
		t.small, t.leave = false, nil
		if err := t.wait(ctx); err != nil {
			return sandboxReply{}, err
		}
	}
}

func overLimits(err error) bool {
	var e *TemplateError
	return errors.As(err, &e) && (e.Kind == KindTime || e.Kind == KindMemory)
}

// attempt runs a child, and tries once more if the system could not run it.
func (s Sandbox) attempt(ctx context.Context, l limits, c sandboxCall) (r sandboxReply, err error) {
	for range 2 {
		var e *TemplateError
		if r, err = s.run(ctx, l, c); !errors.As(err, &e) || e.Kind != KindUnavailable {
			break
		}
	}
	return r, err
}
