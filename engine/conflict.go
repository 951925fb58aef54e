package engine

import (
	"fmt"

	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
)

// checkConstraints refuses a request whose parameters and grammar together forbid every first
// token. g is the grammar state of its first choice. The error is a *ConflictError.
func (e *Engine) checkConstraints(r Request, g sched.Grammar) error {
	p := &r.Params
	if r.Pooling != NoPooling || p.AllowedTokenIDs == nil && len(p.BadWords) == 0 && p.MinTokens == 0 {
		return nil
	}
	var mask []uint32
	if g != nil {
		if mask = make([]uint32, (e.vocab+31)/32); !g.Mask(mask) {
			mask = nil
		}
		if g.Err() != nil { // the first token ends the reply with it
			return nil
		}
	}
	at := sample.At{Position: len(r.Prompt), Prompt: len(r.Prompt)}
	return conflict(p, at, g, mask, e.vocab)
}

// noTokenError returns why a sampled row has no token: the grammar's own error, a
// *ConflictError, or ErrNoToken.
func (l *loop) noTokenError(set int, o sched.Output) error {
	if o.Err != nil {
		return fmt.Errorf("%w: %w", ErrGrammar, o.Err)
	}
	if o.Row < 0 {
		return ErrNoToken
	}
	q, n := o.Seq, len(o.Seq.Prompt())
	at := sample.At{Position: n + len(q.Output()), Prompt: n, Output: q.Output()}
	if err := conflict(q.Params(), at, q.Grammar(), l.runner.Mask(set, o.Row), l.e.vocab); err != nil {
		return err
	}
	return ErrNoToken
}

// conflict returns a *ConflictError if p and g's mask together allow no token.
func conflict(p *sample.Params, at sample.At, g sched.Grammar, mask []uint32, vocab int) error {
	names := p.Conflict(at, mask, vocab)
	if names == nil {
		return nil
	}
	out := &ConflictError{Output: at.Position - at.Prompt}
	for _, name := range names {
		if name != sample.MaskName {
			out.Params = append(out.Params, name)
			continue
		}
		t, is := g.(*thought)
		out.Thinking = is && len(t.queue) > 0
		out.Grammar = !out.Thinking
	}
	return out
}
