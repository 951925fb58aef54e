package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
)

func newUp() *cobra.Command {
	return &cobra.Command{
		Use:   "up PROFILE",
		Short: "Plan, load and serve a model",
		Long: `Up plans the profile, refuses what does not fit, listens, loads the model and
serves it. It watches the profile: see "reload" there.

SIGHUP reads the profile again. SIGTERM and Ctrl-C let the running requests end
(serve.drainTimeout); a second one aborts them.`,
		Args: needArgs(1, 1, "one profile"),
		RunE: func(c *cobra.Command, args []string) error { return up(args[0]) },
	}
}

// up runs the appliance until a signal or an error ends it.
func up(profile string) error {
	box, err := templateSandbox()
	if err != nil {
		return err
	}
	a, err := appliance.New(appliance.Config{
		Profile:  profile,
		Machine:  appliance.Machine{Backends: machines()},
		Version:  buildVersion(),
		Log:      os.Stderr,
		Progress: loadProgress(os.Stderr),
		Sandbox:  box,
	})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, hangup)
	defer signal.Stop(signals)
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	go func() {
		for s := range signals {
			switch {
			case s == hangup:
				a.Reload(appliance.TriggerSignal)
			case ctx.Err() == nil:
				drain()
			default:
				a.Abort(fmt.Errorf("aborted by a second %s", s))
			}
		}
	}()
	return a.Run(ctx)
}
