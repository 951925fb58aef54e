package plan

import "time"

type Way string

const (
	Rebuild Way = "rebuild"
	Beside  Way = "beside"
	Drain   Way = "drain"
)

type Gap struct{ Load time.Duration }
type Transition struct {
	Way                    Way
	KeepsWeights, Overlaps bool
	Why                    string
	Gap                    Gap
}
type ChangeInputs struct{}

func NewTransition(ChangeInputs) (Transition, error) {
	return Transition{Way: Beside, Overlaps: true}, nil
}
