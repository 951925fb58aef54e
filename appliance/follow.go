package appliance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/ranks"
	"vapp.dev/schema"
)

// FollowConfig holds the arguments of Follow.
type FollowConfig struct {
	Profile *schema.Profile
	Machine Machine
	Log     io.Writer
	// Signals are those of this process. The first one makes rank 0 drain, the second ends this rank at once.
	Signals <-chan os.Signal
}

// Follow runs a rank other than 0: it plans its part of the model by rank 0's decisions, loads it, and runs the steps that rank 0
// sends. It returns nil when rank 0 has ended the group.
func Follow(c FollowConfig) error {
	profile := c.Profile
	in, err := c.Machine.inputs(profile)
	if err != nil {
		return err
	}
	abandoned := false // a device that does not stop may still read the model
	defer func() {
		if !abandoned {
			in.Model.Close()
		}
	}()
	if err := in.Model.Loadable(); err != nil {
		return profile.Reject("model.source", "%v", err)
	}
	var level slog.LevelVar
	level.Set(levels[profile.Log.Level])
	setup := c.Machine.Ranks
	log, _ := newLog(c.Log, profile.Log.Format, &level)
	setup.Log = log.With("rank", setup.Place.Rank)
	f := otherRank{FollowConfig: c, in: in, log: setup.Log, Prepared: &Prepared{Profile: profile, Model: in.Model, Opener: in.Opener, setup: setup}}
	abandoned, err = f.run()
	return err
}

// otherRank is a rank other than 0.
type otherRank struct {
	FollowConfig
	*Prepared
	in  plan.Inputs
	log *slog.Logger
}

// run joins rank 0 and follows it. abandoned: the process must exit, since its device hangs.
func (f *otherRank) run() (abandoned bool, err error) {
	m, err := f.openFabric()
	if err != nil {
		return false, err
	}
	self, err := f.member(f.in.Facts)
	if err != nil {
		return false, err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	var joined atomic.Pointer[ranks.Follower]
	go f.passSignals(ctx, &joined, stop)
	to, d, err := m.join(ctx, self)
	if err != nil {
		return false, err
	}
	defer to.Close()
	joined.Store(to)
	to.OnLost(func(err error) { stop(fmt.Errorf("rank %d: %w", m.place.Rank, err)) })
	if abandoned, err = orAbandon(ctx, func() error { return f.follow(ctx, m, to, d) }); err != nil {
		to.Fail(err)
		return abandoned, err
	}
	f.log.Info("rank 0 has ended the group")
	return false, m.session.Close()
}

// orAbandon calls do in a goroutine, since a hanging call of a driver cannot be interrupted. If do has not returned endRank
// after ctx is done it is abandoned.
func orAbandon(ctx context.Context, do func() error) (abandoned bool, err error) {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	select {
	case err := <-ended:
		return false, err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return false, err
	case <-time.After(endRank):
		return true, fmt.Errorf("%w; the device did not stop within %v", context.Cause(ctx), endRank)
	}
}

// endRank is the time that a rank's device has to stop when the group has failed. With silence, by which a rank is found to be lost,
// a process is gone within 10 s also where its memory or a driver keeps it busy.
const endRank = 2 * time.Second

// follow plans, connects and loads this rank and runs steps.
func (f *otherRank) follow(ctx context.Context, m *meeting, to *ranks.Follower, d ranks.Decided) error {
	f.log.Info("joined rank 0", "address", m.address, "ranks", m.place.World, "collectives", m.session.Library())
	var decided plan.Decisions
	if err := json.Unmarshal(d.Decisions, &decided); err != nil {
		return err
	}
	mine, err := plan.Follow(f.in, m.place.Rank, decided)
	if err != nil {
		return err
	}
	if err := to.Agree(mine.Digest()); err != nil {
		return err
	}
	if err := f.bind(mine); err != nil {
		return err
	}
	g, err := m.session.Connect(d.Ticket, f.places().Tensor, f.places().Pipeline, m.options.Wait)
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(mine.GoMemoryLimit)
	config := f.rankConfig(engine.Config{Opener: f.Opener}, mine, g)
	begun := time.Now()
	return engine.Follow(ctx, config, to, f.places(), func(use [backend.NumArenas]int64) {
		logLedger(f.log, mine.Ledger.Compare(use))
		f.log.Info("the weights of this rank are loaded", "after", time.Since(begun).Round(time.Millisecond).String())
	})
}

// signalError ends a rank by a signal.
type signalError struct{ by os.Signal }

func (e signalError) Error() string { return "ended by a signal (" + e.by.String() + ")" }

// passSignals asks rank 0 to drain on the first signal. A second one, and one before this rank has joined, ends this rank.
func (f *otherRank) passSignals(ctx context.Context, joined *atomic.Pointer[ranks.Follower], stop context.CancelCauseFunc) {
	for asked := false; ; {
		select {
		case <-ctx.Done():
			return
		case s := <-f.Signals:
			to := joined.Load()
			if to == nil || asked {
				stop(signalError{s})
				return
			}
			asked = true
			f.log.Info("rank 0 is asked to drain", "signal", s.String())
			to.AskToDrain()
		}
	}
}
