package compat

// statePool is the separate pool for states in one state of the pull request.
type statePool struct {
	requests    int64 // the pool has states for this many requests
	attention   int64 // blocks left for attention
	concurrency float64
}

// splitStates reconstructs the two states of the pull request: memory-planning section 8.
func (o *outcome) splitStates(available int64) error {
	c := o.cache
	per := 2 + c.spec
	page := c.page
	attn := c.attn * page
	whole := ceilDiv(o.length, c.block)
	state := c.states * page * per
	p := &statePool{}
	if o.rel == V017PullA {
		p.requests = max(1, available/(state+attn*whole))
	} else {
		state = c.states * c.state * per
		least := o.blocks / int64(len(c.groups))
		p.requests = max(0, min(int64(o.r.MaxNumSeqs), (available-least*attn)/state))
	}
	p.attention = (available - state*p.requests) / attn
	if p.attention <= 0 || p.requests == 0 {
		return fault("memory", "%v has no memory for the states of one request and its attention: %d bytes", o.rel, available)
	}
	p.concurrency = float64(p.attention) / float64(whole)
	if o.rel == V017PullA {
		p.concurrency = float64(p.requests)
	}
	o.pool = p
	return nil
}
