package backend

import (
	"cmp"
	"slices"
	"time"
)

// OpTime is the total time of the ops of one name.
type OpTime struct {
	Op   string        // "linear", or BetweenSteps
	Runs int64         // phases that ran
	Wall time.Duration // until the next op could begin
	Busy time.Duration // summed over threads; the difference to Wall × threads was spent waiting
}

// BetweenSteps is the OpTime.Op of the time in which a device had no step to run.
const BetweenSteps = "(no step)"

// LongestFirst sorts ops by Wall, the longest first.
func LongestFirst(all []OpTime) {
	slices.SortFunc(all, func(a, b OpTime) int { return cmp.Or(cmp.Compare(b.Wall, a.Wall), cmp.Compare(a.Op, b.Op)) })
}
