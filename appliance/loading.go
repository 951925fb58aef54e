package appliance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
)

// Time limits of a load. Tests change them.
var (
	// quietLoad is the time without progress after which a warning is logged.
	quietLoad = time.Minute
	// endLoad is the time that a cancelled load has to stop.
	endLoad = 5 * time.Second
)

// watchLoad calls load in a separate goroutine, since a hanging driver call cannot be
// interrupted. It logs a warning after each minute without progress. If the load does not
// stop within endLoad after ctx is cancelled, or not within endRank after a group of ranks
// has failed, watchLoad abandons the goroutine and what it uses; the process must then exit.
func (a *Appliance) watchLoad(ctx context.Context, load func(progress func(engine.Progress)) error) (abandoned bool, err error) {
	reports, ended := make(chan engine.Progress), make(chan error, 1)
	begun := time.Now()
	go func() {
		ended <- load(func(p engine.Progress) {
			select {
			case reports <- p:
			case <-ctx.Done():
			}
		})
	}()
	var at engine.Progress
	quiet := time.NewTicker(quietLoad)
	defer quiet.Stop()
	done, over := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case err := <-ended:
			var hangs *hangingError
			return errors.As(err, &hangs), err
		case at = <-reports:
			quiet.Reset(quietLoad)
		case <-quiet.C:
			a.log.Warn("loading: no progress for "+quietLoad.String(), "awaiting", waitingFor(at), "after", round(time.Since(begun)).String())
		case <-done:
			done, over = nil, time.After(endLoad)
		case <-over:
			a.log.Warn("loading did not stop in time; abandoning it", "awaiting", waitingFor(at))
			return true, fmt.Errorf("loading did not stop within %v after it was cancelled: it waits for %s", endLoad, waitingFor(at))
		}
	}
}

// waitingFor describes what a load with the given progress waits for.
func waitingFor(p engine.Progress) string {
	switch {
	case p.Total == 0:
		return "the device to open, or the first weight"
	case p.Capturing && p.Done < p.Total:
		return fmt.Sprintf("CUDA graph %d of %d", p.Done+1, p.Total)
	case !p.Capturing && p.Done < p.Total:
		return fmt.Sprintf("weights, %s of %s are loaded", plan.Size(p.Done), plan.Size(p.Total))
	}
	return "the device to be ready"
}
