package ref

import (
	"errors"
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// executable is a checked program.
type executable struct {
	d   *device
	p   *backend.Program
	ops []op
}

// Program returns the program that was compiled.
func (e *executable) Program() *backend.Program { return e.p }

// Compile checks every shape once (Workspace does), so a step cannot fail because of its
// operands.
func (d *device) Compile(p *backend.Program) (backend.Executable, error) {
	if p.Scratch > int64(len(d.arenas[backend.Scratch])) || len(p.Weights) != len(d.weights) {
		return nil, fmt.Errorf("backend %s: program %s is not one of the reservation", name, p.Name)
	}
	fits := p.Fits(d.r.Step)
	if p.Encodes() {
		fits = p.FitsEncoder(d.r.Encoder)
	}
	if fits != nil {
		return nil, fits
	}
	if err := errors.Join(backend.CheckGroup(name, p, d.layout.group), d.layout.Runs(p.Weights, p)); err != nil {
		return nil, err
	}
	if n, err := d.layout.Workspace(p); err != nil {
		return nil, err
	} else if n > int64(len(d.arenas[backend.Workspace])) {
		return nil, short("program "+p.Name, n, int64(len(d.arenas[backend.Workspace])))
	}
	e := &executable{d: d, p: p}
	for _, op := range p.Ops {
		e.ops = append(e.ops, compile(op))
	}
	return e, nil
}

// known reports whether compile supports the op.
func known(op backend.Op) bool { return compile(op) != nil }

func compile(o backend.Op) op {
	switch o := o.(type) {
	case backend.Tokens:
		return tokens{o}
	case backend.StoreTokens:
		return storeTokens{o}
	case backend.Embed:
		return embed{o}
	case backend.Norm:
		return norm{o}
	case backend.Linear:
		return linear{o}
	case backend.Angles:
		return angles{o}
	case backend.Rope:
		return rope{o}
	case backend.Attention:
		return attention{o}
	case backend.StoreKV:
		return storeKV{o}
	case backend.LatentRope:
		return latentRope{o}
	case backend.HeadLinear:
		return headLinear{o}
	case backend.Gather:
		return gather{o}
	case backend.GatherLast:
		return gatherLast{o}
	case backend.Reorder:
		return reorder{o}
	case backend.Concat:
		return concat{o}
	case backend.Sample:
		return sample{o}
	case backend.OutputRows:
		return outputRows{o}
	case backend.AllReduce:
		return allReduce{o}
	case backend.AllGather:
		return allGather{o}
	case backend.Send:
		return send{o}
	case backend.Receive:
		return receive{o}
	}
	return compileLayer(o)
}

// compileLayer compiles the ops of layers other than attention.
func compileLayer(o backend.Op) op {
	switch o := o.(type) {
	case backend.Adapt:
		return adapt{o}
	case backend.GLU:
		return glu{o}
	case backend.Activate:
		return activate{o}
	case backend.Softcap:
		return softcap{o}
	case backend.Add:
		return addTo{o}
	case backend.Gate:
		return gate{o}
	case backend.Route:
		return route{o}
	case backend.Experts:
		return experts{o}
	case backend.Conv:
		return conv{o}
	case backend.DeltaNet:
		return deltaNet{o}
	case backend.Mamba2:
		return mamba2{o}
	}
	return compileDraft(o)
}

// compileDraft compiles the ops that verify and make proposals.
func compileDraft(o backend.Op) op {
	switch o := o.(type) {
	case backend.DraftInput:
		return draftInput{o}
	case backend.Verify:
		return verify{o}
	case backend.GatherAccepted:
		return gatherAccepted{o}
	case backend.Propose:
		return propose{o}
	}
	return compileVision(o)
}

// pages returns a layer of a class as an operand of kernels/ref.
func (l *launch) pages(class, layer int) ref.Pages {
	c := l.e.p.Classes[class]
	return ref.Pages{
		Arena: l.d.arenas[backend.KV], Format: c.Format, BlockSize: c.BlockSize, KVHeads: c.KVHeads, HeadDim: c.HeadDim, KeyDim: c.KeyDim, Window: c.Window, Chunked: c.Chunked,
		PageBytes: c.PageBytes(), SlabBytes: c.SlabBytes, PagesPerSlab: c.PagesPerSlab, K: c.KOffset(layer), V: c.VOffset(layer),
	}
}

// slot returns where a row is stored in a class: its page and the slot in it. page is −1 if
// the token has left the class's window by the end of the step, or if the page table has no
// page for a draft position.
func (l *launch) slot(class, row int, a *backend.DraftPosition) (page int32, slot int) {
	c := l.e.p.Classes[class]
	if a != nil {
		pos := l.position(row, a)
		if pos < 0 || pos/c.BlockSize >= c.MaxPages {
			return -1, 0
		}
		return l.s.Pages[class][row*c.MaxPages+pos/c.BlockSize], pos % c.BlockSize
	}
	pos, seq := int(l.s.Positions[row]), int(l.s.Seq[row])
	to := int(l.s.Positions[l.s.First[seq+1]-1]) + 1
	e := c.StoreEntry(pos/c.BlockSize, to)
	if e < 0 {
		return -1, 0
	}
	return l.s.Pages[class][seq*c.MaxPages+e], pos % c.BlockSize
}

// position returns a row's position in its sequence; −1 for a draft row of a sequence without
// tokens in the step.
func (l *launch) position(row int, a *backend.DraftPosition) int {
	if a == nil {
		return int(l.s.Positions[row])
	}
	t := l.ints(a.AcceptedRow)[row]
	if t < 0 {
		return -1
	}
	return int(l.s.Positions[t]) + a.By
}

// positions returns the positions of a row whose tokens have several; zeros for a draft row of no sequence.
func (l *launch) positions(row int, a *backend.DraftPosition) []int32 {
	axes := l.e.p.Axes
	if a == nil {
		return rowOf(l.s.MRopePositions, row, axes)
	}
	out := make([]int32, axes)
	if t := l.ints(a.AcceptedRow)[row]; t >= 0 {
		for i, p := range rowOf(l.s.MRopePositions, int(t), axes) {
			out[i] = p + int32(a.By)
		}
	}
	return out
}

// state returns a layer's recurrent state of a sequence in its page: the inputs of the
// convolution, then the copies of the matrices. Before position 0 all are zero.
func (l *launch) state(class, layer, seq int) (c backend.KVClass, conv []byte, matrices []float32) {
	c = l.e.p.Classes[class]
	at := c.Address(l.s.Pages[class][seq*c.MaxPages]) + c.KOffset(layer)
	mem := l.d.arenas[backend.KV][at : at+c.State.Bytes()]
	n := c.State.ConvBytes()
	return c, mem[:n], floats(mem[n:])
}

// plane returns the token plane of a page.
func (l *launch) plane(class int, page int32) []int32 {
	c := l.e.p.Classes[class]
	at := c.Address(page) + c.TokenOffset()
	return view[int32](l.d.arenas[backend.KV][at:][:c.BlockSize*4])
}

// rowOf returns row i of a matrix whose rows have n elements.
func rowOf[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n] }

// cols returns a value's width.
func (l *launch) cols(v backend.Value) int { return l.e.p.Values[v].Cols }

// rowsOf returns a value's row count in this launch.
func (l *launch) rowsOf(v backend.Value) int { return l.count(l.e.p.Values[v].Rows) }

// count returns the value of a row symbol in this launch.
func (l *launch) count(r backend.Rows) int {
	return backend.Bucket{Tokens: l.b.Tokens, Seqs: l.b.Seqs, Samples: l.b.Samples, Chunk: l.e.p.Bucket.Chunk}.Rows(r)
}

// elementBytes returns the size of n elements of a plain format.
func elementBytes(f kernels.Format, n int) int { return int(f.Bytes(int64(n))) }
