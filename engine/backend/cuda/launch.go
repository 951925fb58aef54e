//go:build linux && cgo && cuda

package cuda

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda"
)

// executable is a program as lists of launches: for each variant, one for each set of step
// buffers; an encoder's, one for the item.
type executable struct {
	d        *device
	p        *backend.Program
	variants []variant
	lists    [][]*driver.List
	starts   [][]int      // by variant: index of each op's first launch
	work     [][]workList // by variant
	launches [][]launch   // by variant, for the timer; nil without one
	graphs   []map[backend.Graph]*captured
}

// Program returns the program that was compiled.
func (e *executable) Program() *backend.Program { return e.p }

// Compile checks every shape once, chooses kernels and resolves every address.
func (d *device) Compile(p *backend.Program) (backend.Executable, error) {
	if err := d.r.Takes(name, d.layout, p); err != nil {
		return nil, err
	}
	sets := d.r.Step.NumSets()
	if p.Encodes() {
		sets = 1
	}
	e := &executable{d: d, p: p, variants: variants(p.Bucket), lists: make([][]*driver.List, sets), graphs: make([]map[backend.Graph]*captured, sets)}
	return e, d.do(func() error { return d.compile(e) })
}

func (d *device) compile(e *executable) error {
	for set := range e.lists {
		for _, v := range e.variants {
			at := d.addresses(set)
			if e.p.Encodes() {
				at = d.itemAddresses()
			}
			launches, err := d.layout.lower(e.p, v, at)
			if err != nil {
				return err
			}
			if set == 0 {
				c := lowering{l: d.layout, p: e.p, v: v}
				work, err := c.workLists()
				if err != nil {
					return err
				}
				e.starts, e.work = append(e.starts, starts(launches, len(e.p.Ops))), append(e.work, work)
				if d.timer != nil {
					e.launches = append(e.launches, launches)
				}
			}
			list, err := d.list(launches)
			if err != nil {
				return err
			}
			d.lists, e.lists[set] = append(d.lists, list), append(e.lists[set], list)
		}
	}
	return nil
}

// list resolves the kernels of launches.
func (d *device) list(launches []launch) (*driver.List, error) {
	out := make([]driver.Launch, len(launches))
	for i, l := range launches {
		out[i] = driver.Launch{Blocks: l.blocks, Threads: l.threads, Shared: l.shared, Args: l.args}
		if err := d.runs(l, &out[i]); err != nil {
			return nil, err
		}
		for _, s := range l.symbols {
			out[i].Symbols = append(out[i].Symbols, driver.Symbol{Of: s.of, At: s.at, Dim: s.dim, Times: s.times, Over: s.over, Plus: s.add})
		}
	}
	return driver.NewList(out)
}

// function returns a kernel, with permission for the dynamic shared memory that its launches
// use.
func (d *device) function(kernel string) (*driver.Function, error) {
	d.finding.Lock()
	defer d.finding.Unlock()
	if f := d.functions[kernel]; f != nil {
		return f, nil
	}
	k := d.layout.kernels[kernel]
	f, err := d.modules[k.Stem].Function(cuda.Prefix + kernel)
	if err != nil {
		return nil, err
	}
	const always = 48 << 10
	if n := k.Shared; n > always {
		if err := f.SharedMax(n); err != nil {
			return nil, err
		}
	}
	at, err := f.Attributes()
	if err != nil {
		return nil, err
	}
	if at.Local > d.stack { // of PTX that the driver compiled; the plan has those of the machine code
		if err := d.ctx.ReserveStack(at.Local); err != nil {
			return nil, err
		}
		d.stack = at.Local
	}
	d.functions[kernel] = f
	return f, nil
}

// addresses returns the device addresses of a set. Inputs are copied to the device; outputs
// are written through the mapping to host memory. Sampled tokens are also written to the twin on
// the device, where later launches and the next step read them: a read through the mapping would
// wait for the bus.
func (d *device) addresses(set int) addresses {
	s, o := d.steps[set], d.steps[d.r.Step.Before(set)]
	twin, host := d.arenas[backend.StepIO], d.mapped
	a := addresses{weights: d.offsets, shape: d.r.Step, sampled: place(d, twin, o.Sampled)}
	for i, p := range d.arenas {
		a.arenas[i] = p
	}
	a.step = stepAddresses{
		tokens: place(d, twin, s.Tokens), positions: place(d, twin, s.Positions), seq: place(d, twin, s.Seq), first: place(d, twin, s.First), work: place(d, twin, s.Work),
		rows: place(d, twin, s.Rows), sampling: place(d, twin, s.Sampling), grammar: place(d, twin, s.Grammar), allowed: place(d, twin, s.Allowed),
		bias: place(d, twin, s.Bias), places: place(d, twin, s.MRopePositions), adapters: place(d, twin, s.Adapters),
		encoded: place(d, twin, s.Encoded), itemEnd: place(d, twin, s.ItemEnd), encodedNext: place(d, twin, s.EncodedNext),
		sampled: place(d, twin, s.Sampled), reported: place(d, host, s.Sampled), status: place(d, host, s.Status), logprob: place(d, host, s.Logprob), rank: place(d, host, s.Rank),
		topIDs: place(d, host, s.TopIDs), topProbs: place(d, host, s.TopProbs), accepted: place(d, host, s.Accepted),
		drafts: place(d, host, s.Drafts), emitted: place(d, host, s.Outputs),
	}
	for _, t := range s.Pages {
		a.step.pages = append(a.step.pages, place(d, twin, t))
	}
	return a
}

// place returns the device address of step buffer s, if the set's host memory is mapped at
// base; 0 for an empty one.
func place[T any](d *device, base driver.Address, s []T) driver.Address {
	return placeIn(d.host, base, s)
}

// placeIn is place for a buffer of other host memory.
func placeIn[T any](host []byte, base driver.Address, s []T) driver.Address {
	if len(s) == 0 {
		return 0
	}
	return base + driver.Address(offset(host, s))
}

// offset returns the offset of s in the memory it was carved from.
func offset[T any](host []byte, s []T) int64 {
	return int64(uintptr(unsafe.Pointer(unsafe.SliceData(s))) - uintptr(unsafe.Pointer(unsafe.SliceData(host))))
}

// Launch checks the step, queues the copies of its inputs, and launches the list of its
// variant. It does not wait.
func (d *device) Launch(e backend.Executable, b backend.Binding) error {
	x, ok := e.(*executable)
	if !ok || x.d != d {
		return fmt.Errorf("backend %s: Launch of a program that another device compiled", name)
	}
	if d.ctx == nil {
		return errClosed
	}
	if err := d.r.Step.CheckSet(b.Set); err != nil {
		return err
	}
	if d.sets[b.Set].running {
		return &backend.StepError{Field: "Binding.Set", Why: fmt.Sprintf("set %d is still running: Wait for it first", b.Set)}
	}
	if x.p.Encodes() {
		return &backend.StepError{Field: "Launch", Why: "program " + x.p.Name + " is an encoder's: Encode runs it"}
	}
	if err := d.steps[b.Set].Check(x.p, b, d.r.Arenas[backend.KV]); err != nil {
		return err
	}
	if err := d.steps[b.Set].CheckItems(b, d.r.Encoder); err != nil {
		return err
	}
	if err := d.enter(); err != nil { // no closure, so that a step allocates no Go memory
		return err
	}
	return d.leave(d.launch(x, b))
}

func (d *device) launch(x *executable, b backend.Binding) error {
	if err := d.staging.close(d.ctx); err != nil { // weights are loaded: their staging memory is free
		return err
	}
	var c *captured
	if b.Graph.Kind != backend.Eager {
		if c = x.graphs[b.Set][b.Graph]; c == nil {
			return fmt.Errorf("backend %s: Launch by %v, which was not captured", name, b.Graph)
		}
		if g := b.Graph; b.Tokens > g.Tokens || g.Seqs > 0 && b.Seqs > g.Seqs || g.Samples > 0 && b.Samples > g.Samples {
			return &backend.StepError{Field: "Binding.Graph", Why: fmt.Sprintf("%d tokens, %d sequences, %d samples by %v", b.Tokens, b.Seqs, b.Samples, g)}
		}
	}
	if err := d.fillWork(x.workOf(c, b), b); err != nil {
		return err
	}
	if err := d.enqueue(x, c, b); err != nil {
		return d.fail(err) // queued work may still read the step's buffers
	}
	d.sets[b.Set].running = true
	return nil
}

// enqueue queues the copies of the step's inputs and its launches.
func (d *device) enqueue(x *executable, c *captured, b backend.Binding) error {
	st := &d.sets[b.Set]
	st.limit = hangTimeout + time.Duration(b.Tokens)*hangTimeoutPerToken
	if err := d.upload(x, c, padded(b)); err != nil {
		return err
	}
	if err := d.in.Record(st.copied); err != nil {
		return err
	}
	if err := d.work.WaitFor(st.copied); err != nil {
		return err
	}
	if err := d.start(x, c, b); err != nil {
		return err
	}
	return d.work.Record(st.done)
}

// start runs a step by its graphs, or by the list of its variant.
func (d *device) start(x *executable, c *captured, b backend.Binding) error {
	if d.timer != nil {
		return d.measured(x, c, b)
	}
	if c != nil {
		return d.replay(c, b)
	}
	if i := x.holds(b); i >= 0 {
		list := x.lists[b.Set][i]
		return d.work.run(list, 0, list.Len(), bound(b.Tokens, b.Seqs, b.Samples), d.sets[b.Set].limit)
	}
	return errNoList(b)
}

// workOf returns the lists of work of a step's launches.
func (e *executable) workOf(c *captured, b backend.Binding) []workList {
	if c != nil {
		return c.work
	}
	if i := e.holds(b); i >= 0 {
		return e.work[i]
	}
	return nil // start returns the error
}

// fillWork writes the step's lists of work.
func (d *device) fillWork(lists []workList, b backend.Binding) error {
	s := d.steps[b.Set]
	for _, l := range lists {
		_, ok := d.lister.Write(l.AttentionPieces, s.Work[l.at:l.at+l.most], b.Seqs, func(seq int) (from, count int) {
			first := s.First[seq]
			if count = int(s.First[seq+1] - first); count > 0 {
				from = int(s.Positions[first])
			}
			return from, count
		})
		if !ok {
			return &backend.StepError{Field: "Work", Why: fmt.Sprintf("the pieces of attention of %d tokens and %d sequences do not fit in %d numbers", b.Tokens, b.Seqs, l.most)}
		}
	}
	return nil
}

// holds returns the index of the list for a step without graph, or −1.
func (e *executable) holds(b backend.Binding) int {
	return slices.IndexFunc(e.variants, func(v variant) bool { return v.holds(b) })
}

func errNoList(b backend.Binding) error {
	return fmt.Errorf("no list of launches holds %+v", b)
}

// bound returns the values of a list's symbols.
func bound(tokens, seqs, samples int) [driver.NumBound]int32 {
	var out [driver.NumBound]int32
	out[backend.PerToken], out[backend.PerSeq], out[backend.PerSample] = int32(tokens), int32(seqs), int32(samples)
	return out
}

// lastPosition returns the largest position of the step's tokens; −1 without tokens.
func lastPosition(s *backend.Step, b backend.Binding) int32 {
	most := int32(-1)
	for seq := range b.Seqs {
		if end := s.First[seq+1]; end > s.First[seq] {
			most = max(most, s.Positions[end-1])
		}
	}
	return most
}

// Wait blocks until the set's launch has finished, or until the device has not responded for
// longer than any step takes.
func (d *device) Wait(set int) error {
	if d.ctx == nil {
		return errClosed
	}
	st := &d.sets[set]
	if !st.running {
		return nil
	}
	st.running = false
	if err := d.enter(); err != nil {
		return err
	}
	err := d.work.wait.until(st.done, st.limit)
	if err == nil && d.timer != nil {
		err = d.timer.add(&d.timer.sets[set])
	}
	return d.leave(err)
}
