package ref

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// op is a compiled op: independent units of work.
type op interface {
	units(l *launch) int
	// run computes unit i in the workspace of a worker.
	run(l *launch, worker, i int) error
}

// pool distributes the units of one op over goroutines. Worker 0 is the caller.
type pool struct {
	start []chan struct{} // of workers 1 and up
	wg    sync.WaitGroup
	next  atomic.Int64
	l     *launch
	op    op
	n     int64
	errs  []error // by worker
}

func newPool(threads int) *pool {
	p := &pool{errs: make([]error, threads)}
	for w := 1; w < threads; w++ {
		c := make(chan struct{})
		p.start = append(p.start, c)
		go func() {
			for range c {
				p.errs[w] = p.work(w)
				p.wg.Done()
			}
		}()
	}
	return p
}

// run computes all units of op and returns an error of one that failed.
func (p *pool) run(l *launch, op op) error {
	n := op.units(l)
	p.l, p.op, p.n = l, op, int64(n)
	p.next.Store(0)
	helpers := p.start[:max(0, min(len(p.start), n-1))]
	p.wg.Add(len(helpers))
	for _, c := range helpers {
		c <- struct{}{}
	}
	p.errs[0] = p.work(0)
	p.wg.Wait()
	for w, err := range p.errs {
		if err != nil {
			clear(p.errs[w:])
			return err
		}
	}
	return nil
}

func (p *pool) work(worker int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v\n%s", r, debug.Stack())
		}
	}()
	for i := p.next.Add(1) - 1; i < p.n; i = p.next.Add(1) - 1 {
		if err := p.op.run(p.l, worker, int(i)); err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) close() {
	for _, c := range p.start {
		close(c)
	}
}
