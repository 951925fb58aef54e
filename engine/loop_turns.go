package engine

import "time"

// turn is the loop's side of Turns. Without Turns its methods do nothing.
type turn struct {
	of    Turns // nil: the device is this engine's alone
	held  bool
	steps int // launched in this turn
}

// takeTurn waits for a turn if there is work and none is held. It returns true after a wait,
// during which messages may have arrived.
func (l *loop) takeTurn() bool {
	t := &l.turns
	if t.of == nil || t.held || l.sched.Idle() {
		return false
	}
	t.of.Enter()
	t.held, t.steps = true, 0
	l.last = time.Time{} // the device computed for others
	return true
}

// endsTurn reports whether no further step is launched in this turn, because another engine's
// turn has come. A turn has at least one step.
func (l *loop) endsTurn() bool {
	t := &l.turns
	return t.held && t.steps > 0 && t.of.Wanted()
}

// yieldTurn lets other engines have their turns and waits for the next one. No step runs.
func (l *loop) yieldTurn() {
	if l.sched.Idle() {
		l.leaveTurn()
		return
	}
	l.turns.of.Yield()
	l.turns.steps = 0
	l.last = time.Time{}
}

// leaveTurn ends the turn, if one is held. No step runs.
func (l *loop) leaveTurn() {
	if l.turns.held {
		l.turns.held = false
		l.turns.of.Leave()
	}
}
