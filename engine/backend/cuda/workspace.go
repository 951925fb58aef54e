package cuda

import (
	"fmt"

	"vapp.dev/engine/backend"
)

const (
	// maxHeadDim is the widest head that attention keeps in registers and shared
	// memory.
	maxHeadDim = 512
	// splits is into how many parts at most a decoding sequence's history is cut;
	// cuts are at absolute positions, so that the batch does not move them.
	splits = 16
	// deltaChunk is how many tokens the chunked form of the delta rule takes at once.
	deltaChunk = 64
	// sampleRow is a row's room for the histograms that find top-k and top-p.
	sampleRow = 16 << 10
)

// libraryRoom is what cuBLASLt is given, in bytes: what its heuristics ask for at
// most, before Hopper and since.
func (l layout) libraryRoom() int64 {
	if l.cc >= 90 {
		return 32 << 20
	}
	return 8<<20 + 128<<10
}

// Workspace is the largest room of an op: ops run one after the other, all begin
// at its start. It refuses shapes that no kernel has.
func (l layout) Workspace(p *backend.Program) (int64, error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	var most int64
	for _, op := range p.Ops {
		n, err := l.room(p, op)
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// room of one op, at the bucket's row counts.
func (l layout) room(p *backend.Program, op backend.Op) (int64, error) {
	rows := func(v backend.Value) int64 { return int64(p.Rows(p.Values[v].Rows)) }
	switch o := op.(type) {
	case backend.Linear: // X as the matrix units take it, then the library's room
		return up(2*rows(o.X)*int64(p.Values[o.X].Cols), align) + l.libraryRoom(), nil
	case backend.Attention:
		return l.attentionRoom(p, o)
	case backend.Experts: // X once, each pick's order, gate and up, their product, and what down gives
		picks, cols := rows(o.X)*int64(o.Top), int64(p.Values[o.X].Cols)
		return up(2*rows(o.X)*cols, align) + up(16*picks, align) + up(2*picks*3*int64(o.Width), align) + up(4*picks*cols, align), nil
	case backend.DeltaNet: // of each chunk and value head: corrections, the triangle, the state before it
		tokens := up(rows(o.QKV), deltaChunk)
		k, v := int64(o.KeyDim), int64(o.ValueDim)
		return up(4*tokens*int64(o.ValueHeads)*(k+v+deltaChunk), align) + up(4*(tokens/deltaChunk)*int64(o.ValueHeads)*k*v, align), nil
	case backend.Sample:
		return up(rows(o.Logits)*sampleRow, align), nil
	}
	return 0, nil
}

// attentionRoom is what decoding leaves of each part of a history until the parts
// are joined: a head's sum, its largest score and the sum of weights, F32.
func (l layout) attentionRoom(p *backend.Program, o backend.Attention) (int64, error) {
	if o.HeadDim > maxHeadDim {
		return 0, backend.Unsupported(name, fmt.Sprintf("attention heads of %d", o.HeadDim), fmt.Sprintf("at most %d", maxHeadDim))
	}
	if o.Both {
		return 0, nil
	}
	return up(4*int64(p.Bucket.Samples)*int64(o.Heads)*splits*int64(o.HeadDim+2), align), nil
}
