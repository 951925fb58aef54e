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
	if err := plan.Refuse(profile); err != nil {
		return err
	}
	in, err := c.Machine.inputs(profile)
	if err != nil {
		return err
	}
	defer in.Model.Close()
	if err := in.Model.Loadable(); err != nil {
		return profile.Reject("model.source", "%v", err)
	}
	var level slog.LevelVar
	level.Set(levels[profile.Log.Level])
	setup := c.Machine.Ranks
	log, _ := newLog(c.Log, profile.Log.Format, &level)
	setup.Log = log.With("rank", setup.Place.Rank)
	f := otherRank{FollowConfig: c, in: in, log: setup.Log, Prepared: &Prepared{Profile: profile, Model: in.Model, Opener: in.Opener, setup: setup}}
	return f.run()
}

// otherRank is a rank other than 0.
type otherRank struct {
	FollowConfig
	*Prepared
	in  plan.Inputs
	log *slog.Logger
}

func (f *otherRank) run() error {
	m, err := f.openFabric()
	if err != nil {
		return err
	}
	self, err := f.member(f.in.Facts)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	var joined atomic.Pointer[ranks.Follower]
	go f.passSignals(ctx, &joined, stop)
	to, d, err := m.join(ctx, self)
	if err != nil {
		return err
	}
	defer to.Close()
	joined.Store(to)
	to.OnLost(func(err error) { stop(fmt.Errorf("rank %d: %w", m.place.Rank, err)) })
	if err := f.follow(ctx, m, to, d); err != nil {
		to.Fail(err)
		return err
	}
	f.log.Info("rank 0 has ended the group")
	return m.session.Close()
}

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
