package backend

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/kernels"
)

// TestDraftChecks: draft rows are one per sequence, and the ops of a draft head check their
// operands.
func TestDraftChecks(t *testing.T) {
	p, _, _, _ := small(t)
	r := &Recorder{p: p, at: map[Value]bool{}}
	kept, next := r.New("kept", kernels.I32, PerSeq, 1), r.New("next", kernels.I32, PerToken, 1)
	qkv, angles := r.New("seq.qkv", kernels.F32, PerSeq, 48), r.New("seq.angles", kernels.F32, PerSeq, 16)
	q, y := r.New("seq.q", kernels.F32, PerSeq, 16), r.New("seq.y", kernels.F32, PerSeq, 16)
	k, v := r.New("seq.k", kernels.F16, PerSeq, 16), r.New("seq.v", kernels.F16, PerSeq, 16)
	logits, id := r.New("seq.logits", kernels.F32, PerSeq, 48), r.New("seq.id", kernels.I32, PerSeq, 1)
	one := &DraftPosition{AcceptedRow: kept, By: 1}
	attend := Attention{Q: q, K: k, V: v, Y: y, Heads: 1, KVHeads: 1, HeadDim: 16, Scale: 1, Draft: one}
	good := []Op{
		DraftInput{0, next}, Verify{0, kept}, GatherAccepted{1, kept, qkv}, Angles{InvFreq: 2, Scale: 1, Y: angles, Draft: one},
		Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: v, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16},
		attend, StoreKV{K: k, V: v, Draft: one}, Gate{y, q}, Propose{logits, id, 1, 2},
	}
	before := len(p.Ops)
	p.Lookahead = 1
	p.Ops = append(p.Ops, good...)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for _, op := range good {
		if _, plain := op.(Rope); RequiredFeature(op) == "" && !plain {
			t.Errorf("RequiredFeature of %s is empty", OpName(op))
		}
	}
	windowed := attend
	windowed.Class, windowed.Window = 1, 8
	p.Classes = append(p.Classes, p.Classes[0])
	p.Classes[1].Window = 8
	past, both := attend, attend
	past.Draft, both.Bidirectional = &DraftPosition{AcceptedRow: kept}, true
	for want, op := range map[string]Op{
		"Out is Ids":                   DraftInput{0, 0},
		"AcceptedRow (ids) has rows":   Verify{0, 0},
		"X (seq.q) has rows":           GatherAccepted{q, kept, y},
		"Y (seq.q) has 16":             GatherAccepted{1, kept, q},
		"Y (angles) has rows":          Angles{InvFreq: 2, Scale: 1, Y: 2, Draft: one},
		"Q (seq.q) has rows":           Attention{Q: q, K: k, V: v, Y: y, Heads: 1, KVHeads: 1, HeadDim: 16, Scale: 1},
		"0 positions ahead":            past,
		"no token after them":          both,
		"positions ahead, the":         StoreKV{K: k, V: v, Draft: &DraftPosition{AcceptedRow: kept, By: 2}},
		"K (seq.k) has rows":           StoreKV{K: k, V: v},
		"K (k) has rows":               StoreKV{K: 5, V: 6, Draft: one},
		"Draft.AcceptedRow (next) has": StoreKV{K: k, V: v, Draft: &DraftPosition{AcceptedRow: next, By: 1}},
		"Angles (angles) has rows":     Rope{QKV: qkv, Angles: 2, Q: q, K: k, V: v, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16},
		"not tokens or sequences":      Rope{QKV: 7, Angles: angles, Q: q, K: k, V: v, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16},
		"draft positions in class":     windowed,
		"which keeps 8 tokens":         StoreKV{K: k, V: v, Class: 1, Draft: one},
		"X is Gate":                    Gate{y, y},
		"Gate (x) has rows":            Gate{y, 1},
		"Logits (logits) has rows":     Propose{8, id, 0, 1},
		"proposal 2 of 2":              Propose{logits, id, 2, 2},
	} {
		p.Ops = append(p.Ops[:before], op)
		var bad *ProgramError
		if err := p.Check(); !errors.As(err, &bad) || !strings.Contains(bad.Why, want) {
			t.Errorf("%+v: %v, want %q", op, err, want)
		}
	}
}

// TestFits: a program that verifies or proposes needs the step's buffers for it.
func TestFits(t *testing.T) {
	p := &Program{Name: "p", Bucket: Bucket{Tokens: 8, Seqs: 4, Samples: 8}, Ops: []Op{Verify{}}}
	for want, s := range map[string]StepShape{
		"Step.Accepted holds 0": {Seqs: 4}, "of 4 sequences": {Seqs: 3, Verify: 1}, "": {Seqs: 4, Verify: 1},
	} {
		if err := p.Fits(s); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	p.Ops = append(p.Ops, Propose{N: 1, Of: 2})
	for want, s := range map[string]StepShape{"has 0 columns": {Seqs: 4, Verify: 2}, "has 3 columns": {Seqs: 4, Drafts: 3}, "": {Seqs: 5, Drafts: 2}} {
		if err := p.Fits(s); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// TestSnapshotBytes uses Qwen3.5-27B on two ranks with two proposals: 48 layers of
// five rows of inputs and one copy of the matrices, 78 MB.
func TestSnapshotBytes(t *testing.T) {
	c := KVClass{Name: "state", Layers: 48, State: &StateShape{ConvRows: 5, ConvCols: 5120, ConvFormat: kernels.BF16, Heads: 24, Rows: 128, Cols: 128, Copies: 3}}
	if got, page := c.SnapshotBytes(), c.PageBytes(); got != 48*(51200+1572864) || page != 48*(51200+3*1572864) {
		t.Errorf("a snapshot of %d bytes, a page of %d", got, page)
	}
	if c.State.Copies != 3 {
		t.Error("the class was changed")
	}
	if n := (KVClass{Format: kernels.F16, BlockSize: 16, Layers: 1, KVHeads: 1, HeadDim: 16}).SnapshotBytes(); n != 0 {
		t.Errorf("a class of attention has snapshots of %d bytes, want 0", n)
	}
}
