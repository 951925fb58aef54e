package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// Qwen3.5's MTP head (multi-token prediction, vLLM's method "mtp") runs within the step's program.
// From the last hidden state h[t] and the embedding of token t+1, one block of full attention
// predicts token t+2. Further tokens are predicted from the block's own hidden state and
// prediction. It shares the target's embedding and head.
//
// A step proceeds as follows, for a sequence with last Sampled token x and proposals d1 … dk from
// the previous step:
//
//  1. The target runs on x, d1 … dk (or on a chunk of the prompt) and samples every row: row i
//     yields the token after it, using the random number of that position. Penalties see d1 … di as
//     history, because StoreTokens has stored them with the pages. A row is valid while all
//     proposals before it equal the sampled tokens. Greedy and sampled tokens are therefore exactly
//     those of decoding without proposals; no other acceptance test is needed. Account reserves
//     memory for the samples of the step after it: seqs · (1 + k).
//  2. Verify counts the valid rows on the device (Step.Accepted) and writes the index of the last
//     one to kept [S,1].
//  3. The drafter runs on all rows of the step at their own positions to store its keys and values.
//     Row t needs h[t], the target's state after its last norm, and the token after row t
//     (DraftInput). Rows after kept belong to rejected proposals; the next step starts there and
//     overwrites their pages, as it does in the target's layers. In a prompt chunk that is not the
//     last one, the last row is "sampled" with UseTarget, and the target is the prompt's next
//     token.
//  4. The first proposal is computed from the kept rows only: GatherAccepted, then the block's MLP,
//     norm, head and Propose on S rows.
//  5. Each further proposal is a pass of S rows, n positions after kept. Its key goes into the
//     page, because the next pass reads it; the next step overwrites it. The last pass stores
//     nothing. The scheduler reserves pages for Draft − 2 positions beyond the step's; positions
//     beyond the page table are ignored.
//  6. Step.Drafts holds the proposals. The tokens of the next step are the kept row's Sampled token
//     and Drafts, at positions that depend on Accepted; the host fills them in after Wait.
//
// Proposals are the head's most likely tokens. Sampling them would not raise the acceptance rate: a
// fixed proposal is accepted with the target's probability of that token.
//
// Delta nets keep one copy of the state after each row of (1), at index position modulo 1 + Draft.
// The next step computes the index of kept's copy from its position.
//
// A prefix hit reuses this block's pages too. The last token of the hit was stored with the
// successor that it had in another sequence; that may lose a proposal, never a token.

// maxDraft is the maximum number of proposals in a step.
const maxDraft = 32

// mtpTensors lists the head's tensors, under vLLM's names.
func (q qwen35Config) mtpTensors(l *tensorList) {
	if q.mtpLayers == 0 {
		return
	}
	h := q.HiddenSize
	l.linear("mtp.fc", false, h, 2*h)
	for _, n := range []string{"norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"} {
		l.add("mtp."+n+".weight", h)
	}
	if q.mtpOwnEmbeddings {
		l.add("mtp.embed_tokens.weight", q.VocabSize, h)
	}
	for i := range q.mtpLayers {
		p := fmt.Sprintf("mtp.layers.%d.", i)
		q.attentionTensors(l, p+"self_attn.")
		q.blockTensors(l, p, q.feedForward(q.NumLayers))
	}
}

// checkBuild refuses proposals if the head is missing or not supported.
func (q qwen35Config) checkBuild(b Build) error {
	switch {
	case min(b.Draft, b.Verify) < 0 || max(b.Draft, b.Verify) > maxDraft:
		return &UnsupportedError{fmt.Sprintf("%d proposed tokens, %d verified", b.Draft, b.Verify), fmt.Sprintf("0 to %d are", maxDraft)}
	case q.tiled && b.Shard.World > 1:
		return &UnsupportedError{fmt.Sprintf("a GGUF file of %s at tensor parallel size %d", q.Architecture, b.Shard.World),
			"ranks cannot divide its output projections, whose columns are in tiles; its safetensors files are divided"}
	case b.Draft == 0:
		return nil
	case q.mtpLayers == 0:
		return &UnsupportedError{"speculation by the model's own head", "its config has no mtp_num_hidden_layers"}
	case q.mtpLayers > 1:
		return &UnsupportedError{fmt.Sprintf("mtp_num_hidden_layers %d", q.mtpLayers), "a head of one layer is recorded"}
	case q.mtpOwnEmbeddings:
		return &UnsupportedError{"mtp_use_dedicated_embeddings", "the head shares the model's table"}
	case b.Shard.World > 0 && q.HiddenSize%b.Shard.World != 0:
		return b.checkEven(q.HiddenSize, "rows of mtp.fc (hidden_size)")
	}
	return nil
}

// qwen35Drafter holds the weights of the MTP head.
type qwen35Drafter struct {
	*qwen35
	embedNorm, hiddenNorm, fc, norm backend.WeightID
	layer                           qwen35Layer
}

// newDrafter adds the head's weights; slot is its layer's index in the full class.
func (m *qwen35) newDrafter(l *loader, slot int) *qwen35Drafter {
	n := len(l.specs)
	d := &qwen35Drafter{
		qwen35:     m,
		embedNorm:  l.vector("mtp.embed_norm", "norm", all("mtp.pre_fc_norm_embedding.weight")),
		hiddenNorm: l.vector("mtp.hidden_norm", "norm", all("mtp.pre_fc_norm_hidden.weight")),
		fc:         l.matrix(matrix{name: "mtp.fc", group: "drafter"}, l.rows("mtp.fc.weight", m.hidden, 1)),
		layer:      m.block(l, "mtp.layers.0.", "mtp.", fullAttention, m.cfg.feedForward(m.cfg.NumLayers)),
		norm:       l.vector("mtp.norm", "norm", all("mtp.norm.weight")),
	}
	d.layer.slot = slot
	for i := range l.specs[n:] {
		l.specs[n+i].Group = "drafter"
	}
	return d
}

// record consumes hidden [T,hidden] and angles. For ids and kept see proposer.
func (d *qwen35Drafter) record(r *backend.Recorder, ids, kept, hidden, angles backend.Value) {
	next := r.New("next", kernels.I32, backend.PerToken, 1)
	r.Do(backend.DraftInput{Ids: ids, Out: next})
	s := d.begin(r, next, hidden, backend.PerToken)
	s.angles = angles
	y := s.attend(s.normalize(d.layer.mixerNorm), d.layer, true)
	s.x, y = gatherAccepted(r, s.x, kept), gatherAccepted(r, y, kept)
	s.rows = backend.PerSeq
	r.Free(angles)
	for n := 1; ; n++ {
		s.project(y, d.layer)
		hidden = s.finish(d.norm)
		id := r.New("proposed", kernels.I32, backend.PerSeq, 1)
		logits := d.logits(r, hidden)
		r.Do(backend.Propose{Logits: logits, Ids: id, N: n - 1, Of: d.Draft})
		r.Free(logits)
		if n == d.Draft {
			r.Free(id, hidden)
			return
		}
		s = d.begin(r, id, hidden, backend.PerSeq)
		s.ahead = &backend.DraftPosition{AcceptedRow: kept, By: n}
		s.angles = d.recordAngles(r, s.ahead)
		y = s.attend(s.normalize(d.layer.mixerNorm), d.layer, n < d.Draft-1)
		r.Free(s.angles)
	}
}

// begin consumes token ids and hidden states, and starts a pass with fc of their concatenated
// norms.
func (d *qwen35Drafter) begin(r *backend.Recorder, ids, hidden backend.Value, rows backend.Rows) *qwen35Pass {
	s := &qwen35Pass{qwen35: d.qwen35, r: r, delta: backend.NoValue, rows: rows, angles: backend.NoValue}
	e := d.lookup(r, ids, "embedding")
	if d.Vision && rows == backend.PerToken {
		r.Do(backend.Merge{X: e, Next: true})
	}
	r.Do(d.zeroCentred(e, d.embedNorm, e))
	r.Do(d.zeroCentred(hidden, d.hiddenNorm, hidden))
	both := r.New("both", kernels.F32, rows, 2*d.hidden)
	r.Do(backend.Concat{A: e, B: hidden, Y: both})
	r.Free(ids, e, hidden)
	_, n := d.part(d.hidden)
	s.x = s.linear(both, d.fc, "residual", n)
	r.Free(both)
	if d.Shard.World > 1 {
		all := r.New("residual.all", kernels.F32, rows, d.hidden)
		r.Do(backend.AllGather{X: s.x, Y: all})
		r.Free(s.x)
		s.x = all
	}
	return s
}

// gatherAccepted consumes x [T,cols] and returns the last accepted row of each sequence [S,cols].
func gatherAccepted(r *backend.Recorder, x, kept backend.Value) backend.Value {
	in := r.Info(x)
	y := r.New(in.Name+".kept", in.Format, backend.PerSeq, in.Cols)
	r.Do(backend.GatherAccepted{X: x, AcceptedRow: kept, Y: y})
	r.Free(x)
	return y
}
