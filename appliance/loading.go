package appliance

import (
	"context"
	"fmt"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
)

// The patience with a load. Tests change it.
var (
	// quietLoad is how long a load may come no further before the log says so.
	quietLoad = time.Minute
	// endLoad is how long it may take to end when it is told to.
	endLoad = 5 * time.Second
)

// loaded loads in a goroutine of its own, for a call of a driver that hangs can neither be
// ended nor be waited for. Where nothing comes for a minute the log says what it waits for. A load
// that is told to end by ctx and does not is left behind, with all that it uses: the process has to
// end.
func (a *Appliance) loaded(ctx context.Context) (left bool, err error) {
	told, ended := make(chan engine.Progress), make(chan error, 1)
	begun := time.Now()
	go func() {
		ended <- a.load(ctx, func(p engine.Progress) {
			if a.cfg.Progress != nil {
				a.cfg.Progress(p)
			}
			select {
			case told <- p:
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
			return false, err
		case at = <-told:
			quiet.Reset(quietLoad)
		case <-quiet.C:
			a.log.Warn("loading: no progress for "+quietLoad.String(), "awaiting", awaited(at), "after", round(time.Since(begun)).String())
		case <-done:
			done, over = nil, time.After(endLoad)
		case <-over:
			a.log.Warn("loading: it does not end and is left", "awaiting", awaited(at))
			return true, fmt.Errorf("loading did not end within %v of being told to: it awaits %s", endLoad, awaited(at))
		}
	}
}

// awaited is what a load waits for that has come so far.
func awaited(p engine.Progress) string {
	switch {
	case p.Total == 0:
		return "the device to open, or the first weight"
	case p.Capturing && p.Done < p.Total:
		return fmt.Sprintf("CUDA graph %d of %d", p.Done+1, p.Total)
	case !p.Capturing && p.Done < p.Total:
		return fmt.Sprintf("weights, %s of %s are there", plan.Size(p.Done), plan.Size(p.Total))
	}
	return "the device to be ready"
}
