package tokenizer

import (
	"context"
	"errors"
	"time"

	"vapp.dev/engine/fairqueue"
)

// Children limits the child processes of a server: one at a time for small work and one for
// the rest. Clients take turns at each (package fairqueue); the client is that of the context.
type Children struct{ small, large *fairqueue.Gate }

// NewChildren returns Children that have no work.
func NewChildren() *Children {
	return &Children{fairqueue.NewGate(1, maxWaiting), fairqueue.NewGate(1, maxWaiting)}
}

// Idle reports whether no child runs and no work waits for one.
func (c *Children) Idle() bool { return c.small.Idle(1) && c.large.Idle(1) }

// limits are what a child may use.
type limits struct {
	memory int64         // private bytes beyond those of a child that does nothing
	stack  int64         // of a thread that compiles; part of memory
	cpu    time.Duration // processor time; 0: Sandbox.Time alone
}

// Of 224 published schemas of 30 to 256 KiB (SchemaStore), those that compile at all need at
// most 48 MiB and a second; a schema of some properties needs 2 MiB and 20 ms.
var (
	smallChild = limits{memory: 24 << 20, stack: 8 << 20, cpu: 300 * time.Millisecond}
	largeChild = limits{memory: 64 << 20, stack: 16 << 20}
)

const (
	bareChild  = 8 << 20          // private memory of a child that does nothing: 4 MiB, with a margin
	maxWaiting = 128              // pieces of work that wait for each of the two
	waitTime   = 10 * time.Second // for a place
	smallCost  = 64 << 10         // work that costs more is not begun as small
)

// ChildBytes returns the most memory that the child for small work and the other one take.
func ChildBytes() (small, large int64) {
	return bareChild + smallChild.memory, bareChild + largeChild.memory
}

// processChildren are those of Sandboxes that name none.
var processChildren = NewChildren()

// turn is the right to run one child.
type turn struct {
	of    Sandbox
	cost  int
	small bool
	leave func()
}

// begin waits for the turn of work that costs so much, in bytes of source or the like.
func (s Sandbox) begin(ctx context.Context, cost int) (*turn, error) {
	t := &turn{of: s.orDefault(), cost: cost, small: cost <= smallCost}
	return t, t.enter(ctx)
}

func (t *turn) enter(ctx context.Context) (err error) {
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

// end gives the place back.
func (t *turn) end() {
	if t.leave != nil {
		t.leave()
	}
}

// do runs a child. What is too much for the small one waits for the large one and is begun
// again. unneeded is asked before each; the reply is empty where it is true.
func (t *turn) do(ctx context.Context, c sandboxCall, unneeded func() bool) (sandboxReply, error) {
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
		if err := t.enter(ctx); err != nil {
			return sandboxReply{}, err
		}
	}
}

func overLimits(err error) bool {
	var e *TemplateError
	return errors.As(err, &e) && (e.Kind == KindTime || e.Kind == KindMemory)
}

// attempt runs a child, and once more if the system did not let it run.
func (s Sandbox) attempt(ctx context.Context, l limits, c sandboxCall) (r sandboxReply, err error) {
	for range 2 {
		var e *TemplateError
		if r, err = s.run(ctx, l, c); !errors.As(err, &e) || e.Kind != KindUnavailable {
			break
		}
	}
	return r, err
}
