package backend

import (
	"cmp"
	"slices"
	"time"
)

// OpTimer is what a Device has that measures its ops where Settings.TimeOps is set.
type OpTimer interface {
	// OpTimes is what ops took since the device was opened, those of a name together:
	// in steps whose sequences have one token each, and in all others. It may be called
	// from any goroutine.
	OpTimes() (decode, prompts []OpTime)
}

// OpTime is the time of the ops of a name.
type OpTime struct {
	Op   string        // "linear"; BetweenSteps is no op
	Runs int64         // phases that ran
	Wall time.Duration // until the next op could begin
	Busy time.Duration // of all threads together: what is missing to Wall times threads, they waited
}

// BetweenSteps is the OpTime of a device that had no step to work on.
const BetweenSteps = "(no step)"

// LongestFirst puts the ops that took longest first.
func LongestFirst(all []OpTime) {
	slices.SortFunc(all, func(a, b OpTime) int { return cmp.Or(cmp.Compare(b.Wall, a.Wall), cmp.Compare(a.Op, b.Op)) })
}
