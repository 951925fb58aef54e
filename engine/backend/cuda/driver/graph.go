//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"unsafe"
)

// Graph is captured work that one call launches.
type Graph struct {
	ctx   *Context
	exec  unsafe.Pointer
	nodes int
}

// Capture records the work that f gives the stream, without running it, and returns a graph
// of it. An error of f, or of a call that a capture does not allow, ends the capture.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	graph, err := s.record(f)
	if err != nil {
		return nil, err
	}
	defer destroyGraph(graph)
	nodes, code := graphNodes(graph)
	if code != 0 {
		return nil, failed("cuGraphGetNodes", code, s.ctx.name)
	}
	exec, code := instantiate(graph)
	if code != 0 {
		return nil, failed("cuGraphInstantiateWithFlags", code, s.ctx.name)
	}
	return &Graph{s.ctx, exec, nodes}, nil
}

// record returns a CUgraph of the work that f gives the stream.
func (s *Stream) record(f func() error) (unsafe.Pointer, error) {
	if code := beginCapture(s.s); code != 0 {
		return nil, failed("cuStreamBeginCapture", code, s.ctx.name)
	}
	err := f()
	graph, code := endCapture(s.s)
	if err = errors.Join(err, failed("cuStreamEndCapture", code, s.ctx.name)); err != nil {
		if graph != nil {
			destroyGraph(graph)
		}
		return nil, err
	}
	return graph, nil
}

// Nodes returns the number of launches, copies and fills.
func (g *Graph) Nodes() int { return g.nodes }

// Launch runs the graph after the stream's earlier work.
func (g *Graph) Launch(s *Stream) error {
	return failed("cuGraphLaunch", launchGraph(g.exec, s.s), g.ctx.name)
}

// Close frees the graph.
func (g *Graph) Close() error {
	return failed("cuGraphExecDestroy", destroyExec(g.exec), g.ctx.name)
}
