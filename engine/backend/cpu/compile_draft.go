//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// draft appends the ops that verify and make proposals.
func (c *compiler) draft(op backend.Op) error {
	switch o := op.(type) {
	case backend.DraftInput:
		return add(c, kcpu.OpDraftInput, kcpu.DraftInput{
			IDs: c.value(o.Ids), First: address(c.s.First), Rows: address(c.s.Rows), Sampled: address(c.s.Sampled), Map: c.workspace(0), Out: c.value(o.Out),
		}, backend.PerToken, 0, 1)
	case backend.Verify:
		return add(c, kcpu.OpVerify, kcpu.Verify{
			IDs: c.value(o.Ids), First: address(c.s.First), Seq: address(c.s.Seq), Rows: address(c.s.Rows), Sampled: address(c.s.Sampled),
			Map: c.workspace(0), AcceptedRow: c.value(o.AcceptedRow), Accepted: address(c.s.Accepted),
		}, backend.PerToken, 0, 1)
	case backend.GatherAccepted:
		y := c.info(o.Y)
		return add(c, kcpu.OpGatherAccepted, kcpu.GatherAccepted{
			X: c.value(o.X), AcceptedRow: c.value(o.AcceptedRow), Y: c.value(o.Y), Bytes: y.Format.Bytes(int64(y.Cols)),
		}, backend.PerSeq, 1, rows(y.Cols))
	case backend.Propose:
		return add(c, kcpu.OpPropose, kcpu.Propose{
			Logits: c.value(o.Logits), IDs: c.value(o.Ids), Drafts: address(c.s.Drafts), Vocab: int32(c.p.Vocab), N: int32(o.N), Of: int32(o.Of),
		}, backend.PerSeq, 1, rows(c.p.Vocab))
	}
	return backend.Unsupported(name, "op "+backend.OpName(op), "it has no kernel")
}

// acceptedRow returns the address of a DraftPosition's AcceptedRow; 0 if rows are tokens.
func (c *compiler) acceptedRow(a *backend.DraftPosition) uintptr {
	if a == nil {
		return 0
	}
	return c.value(a.AcceptedRow)
}

func by(a *backend.DraftPosition) int32 {
	if a == nil {
		return 0
	}
	return int32(a.By)
}
