package engine

import "vapp.dev/engine/backend"

// reportGraph reports how a step ran. It calls Hooks.NoGraph for the first step of each reason
// not to use a graph.
func (l *loop) reportGraph(f flight, report *StepStats) {
	if l.runner.Captured() == 0 {
		return
	}
	switch f.replay.Graph.Kind {
	case backend.Piecewise:
		report.Graph = "PIECEWISE"
		return
	case backend.Full, backend.Decode:
		report.Graph = "FULL"
		return
	}
	why := f.replay.Why
	report.Graph, report.NoGraph = "NONE", why.String()
	if known := l.reportedEager&(1<<why) != 0; !known && l.hooks.NoGraph != nil {
		l.reportedEager |= 1 << why
		l.hooks.NoGraph(report.NoGraph, f.step.Tokens)
	}
}
