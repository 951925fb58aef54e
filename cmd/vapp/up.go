package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/tools/lock"
)

func newUp() *cobra.Command {
	var locked, offline bool
	var backend string
	c := &cobra.Command{
		Use:   "up PROFILE|MODEL...",
		Short: "Plan, load and serve a model, or several",
		Long: `Up plans the profile, refuses what does not fit, listens, loads the model and
serves it. GET /readyz answers 503 with the phase until the model is ready.

A model of the Hugging Face hub is downloaded first, unless it is in the cache
("vapp help pull"). A start never changes a cached model.

It watches the profile (reload.watch). Fields that can change in a running server
change at once, other changes are reported with the difference of the plans, and an
invalid profile changes nothing. SIGHUP reads the profile again.

With --locked it serves only what the profile's lock file describes ("vapp lock"):
it prints a line for each difference in profile, plan, checkpoint or version, and
downloads and loads nothing. A changed profile takes effect when its lock is
updated.

SIGTERM and Ctrl-C stop the server after the running requests have ended
(serve.drainTimeout), with exit code 0. A second signal aborts them, with exit
code 1. SIGUSR1 stops the server in the same way and never aborts: send it to
mpirun, which passes it to every rank and would kill them after a SIGTERM.

` + argHelp + `
With --locked give profiles.

` + severalHelp,
		Args: needArgs(1, -1, "profiles or models"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := withBackend(c, backend)
			if err != nil {
				return err
			}
			if args, err = expand(args); err != nil {
				return err
			}
			return up(c, args, m, locked, offline)
		},
	}
	c.Flags().BoolVar(&locked, "locked", false, "refuse a server that differs from the profile's lock file")
	c.Flags().BoolVar(&offline, "offline", false, offlineFlag)
	backendFlag(c, &backend)
	profileFlags(c, true)
	rankFlags(c)
	return c
}

// abortedError ends up at once, because of a second signal.
type abortedError struct{ by os.Signal }

func (e abortedError) Error() string {
	return "aborted by a second signal (" + e.by.String() + "); running requests were cut off"
}

// up runs the appliance until a signal or an error ends it.
func up(c *cobra.Command, args []string, machine appliance.Machine, locked, offline bool) error {
	say := &startLog{to: os.Stderr}
	if len(args) > 1 {
		return say.failed(serveSeveral(c, args, machine, locked, offline, say))
	}
	return say.failed(serve(c, args[0], machine, locked, offline, say))
}

// serve is up with the log of the steps before and around the server.
func serve(c *cobra.Command, arg string, machine appliance.Machine, locked, offline bool, say *startLog) error {
	profile := arg
	stopped, err := untilSignal(say, func(ctx context.Context) (err error) {
		use := argUse{fetch: !locked, offline: offline, ctx: ctx}
		if profile, machine, err = profileArg(c, arg, machine, use); err != nil {
			return err
		}
		say.use(logFormat(profile, machine))
		if driver.Built {
			say.line(driverLine())
		}
		if locked {
			return nil
		}
		return obtain(ctx, profile, machine, offline, say.hubClient)
	})
	if stopped || err != nil {
		return err
	}
	if handled, err := rankedAt(c, profile, &machine); handled || err != nil {
		return err
	}
	if locked {
		if err := lockable(c, arg, machine); err != nil {
			return err
		}
	}
	all := []appliance.Config{{Profile: profile, Machine: machine}}
	return serveAll(c, all, locked, say, func() (runner, error) { return appliance.New(all[0]) })
}

// serveAll completes the configurations, opens the server and runs it until a signal or an error ends it.
func serveAll(c *cobra.Command, all []appliance.Config, locked bool, say *startLog, open func() (runner, error)) error {
	box, err := templateSandbox()
	if err != nil {
		return err
	}
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	for i := range all {
		at := &all[i]
		at.Machine.Ranks.Drain = drain
		at.Version, at.Log, at.Progress, at.Sandbox = buildVersion(), os.Stderr, say.loading(), box
		if locked {
			admitLocked(c, at)
		}
	}
	a, err := open()
	if drift := (*lock.DriftError)(nil); errors.As(err, &drift) {
		say.line(err.Error()) // has a line for each difference
		return exitError(1)
	} else if err != nil {
		return err
	}
	return untilDrained(ctx, drain, a)
}

// lockable refuses an argument that --locked cannot be for.
func lockable(c *cobra.Command, arg string, m appliance.Machine) error {
	switch {
	case len(m.Set) > 0:
		return &usageError{fmt.Errorf("--locked: %s changes the profile that was locked; write it into the profile and run `vapp lock`", m.Set[0].From), c.CommandPath()}
	case m.Text != nil:
		return &usageError{fmt.Errorf("--locked: %q is a model and has no lock file; give a profile (`vapp init DIR --model %s` writes one)", arg, arg), c.CommandPath()}
	}
	return nil
}

// runner is an appliance.Appliance or an appliance.Fleet.
type runner interface {
	Run(context.Context) error
	Reload(trigger string)
	Abort(why error)
}

// untilDrained runs a server until a signal or an error ends it. drain cancels ctx.
func untilDrained(ctx context.Context, drain func(), a runner) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, hangup, drainSignal)
	defer signal.Stop(signals)
	go func() {
		asked := false // by a signal of which a second one aborts
		for s := range signals {
			switch {
			case s == hangup:
				a.Reload(appliance.TriggerSignal)
			case s == drainSignal:
				drain()
			case !asked:
				asked = true
				drain()
			default:
				a.Abort(abortedError{s})
			}
		}
	}()
	return a.Run(ctx)
}
