// Package pooling answers requests to pooling models: embeddings, classes and the
// similarity of texts, in place of generated text. It uses a chat.Service to render and
// encode texts and to submit requests. It must not know HTTP or the formats of replies.
// Start reading at Service.Pool in pooling.go; score.go builds on it.
package pooling

import (
	"context"
	"slices"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Service answers pooling requests with one model. It has no state of its own and may be
// used from any goroutine.
type Service struct{ text *chat.Service }

// New returns the pooling service of a model.
func New(s *chat.Service) *Service { return &Service{s} }

// Labels returns the names of a classifier's classes.
func (s *Service) Labels() []string {
	if p := s.text.Pooling(); p != nil {
		return p.Labels
	}
	return nil
}

// Params are the parameters of a request for the vectors of texts, not checked yet.
type Params struct {
	ID    string // names request and reply, such as embd-…
	Model string // "": the first served one
	// Task is one of the model's; "": the task per token, the default of vLLM's /pooling.
	Task string

	Chat   *chat.Conversation // in place of Inputs
	Inputs []chat.Prompt
	// pair returns input i of pairs, made of a pair of texts, in place of Inputs.
	pair  func(ctx context.Context, i int) (string, error)
	pairs int

	AddSpecialTokens bool
	Truncate         *int   // truncate_prompt_tokens
	TruncationSide   string // left, right; "": right
	Dimensions       *int
	Activate         *bool // use_activation: normalize embeddings, classes as probabilities; nil: the model's default
	Priority         int
	CacheSalt        *string
}

// Output is the answer to a request: one Vectors per input.
type Output struct {
	ID, Model string
	Created   int64
	Usage     chat.Usage
	Data      []Vectors
}

// Vectors holds the numbers of one input: one vector, or one per token.
type Vectors struct {
	Rows   int // tokens; 0: one vector
	Values []float32
}

// Width returns the length of a vector.
func (v Vectors) Width() int { return len(v.Values) / max(1, v.Rows) }

// Row returns vector i.
func (v Vectors) Row(i int) []float32 {
	w := v.Width()
	return v.Values[i*w : (i+1)*w]
}

// maxInputs bounds the texts of one request, as package chat bounds its choices.
const maxInputs = 16384

// Pool computes the vectors of a request. Its errors are *chat.Error.
func (s *Service) Pool(ctx context.Context, a Params, set *chat.Settings) (*Output, error) {
	model, err := set.Name(a.Model)
	if err != nil {
		return nil, err
	}
	if a.Task, err = s.task(a.Task); err != nil {
		return nil, err
	}
	if err := s.check(&a, set); err != nil {
		return nil, err
	}
	inputs, err := s.inputs(ctx, &a, set)
	if err != nil {
		return nil, chat.AsError(err)
	}
	out := &Output{ID: a.ID, Model: model, Created: s.text.Now().Unix()}
	out.Data, out.Usage, err = s.vectors(ctx, &a, set, inputs)
	if err != nil {
		return nil, chat.AsError(err)
	}
	out.Usage.ReportCached = set.PromptTokensDetails
	for i := range out.Data {
		s.finish(&a, &out.Data[i])
	}
	return out, nil
}

// task returns the task of a request, and refuses one that the model does not support.
func (s *Service) task(asked string) (string, error) {
	tasks := s.text.Tasks()
	if asked == "" && tasks != nil {
		asked = tasks[min(1, len(tasks)-1)]
	}
	if !slices.Contains(tasks, asked) {
		return "", s.text.UnsupportedTask(asked)
	}
	return asked, nil
}

// check refuses parameters that the model or the settings do not allow.
func (s *Service) check(a *Params, set *chat.Settings) error {
	p := s.text.Pooling()
	if err := chat.CheckScheduling(a.Priority, a.CacheSalt, set); err != nil {
		return err
	}
	switch {
	case a.Chat == nil && len(a.Inputs) == 0 && a.pair == nil:
		return chat.Errorf(chat.Malformed, "input", "`input` must hold at least one text.")
	case len(a.Inputs) > maxInputs:
		return chat.Errorf(chat.Invalid, "input", "one request may have at most %d inputs, got %d.", maxInputs, len(a.Inputs))
	case a.TruncationSide != "" && a.TruncationSide != "left" && a.TruncationSide != "right":
		return chat.Errorf(chat.Malformed, "truncation_side", "`truncation_side` must be left or right, got %q.", a.TruncationSide)
	case a.Dimensions == nil:
		return nil
	}
	d := *a.Dimensions
	switch {
	case p.Task != chat.TaskEmbed:
		return chat.Errorf(chat.Invalid, "dimensions", "dimensions is currently not supported for task %q.", a.Task)
	case d < 1:
		return chat.Errorf(chat.Invalid, "dimensions", "Dimensions must be greater than 0, got %d.", d)
	case !p.Matryoshka && p.Dimensions == nil:
		return chat.Errorf(chat.Invalid, "dimensions", "Model %q does not support matryoshka representation, changing output dimensions will lead to poor results.", set.Models[0])
	case p.Dimensions != nil && !slices.Contains(p.Dimensions, d):
		return chat.Errorf(chat.Invalid, "dimensions", "Model %q only supports %v matryoshka dimensions, use other output dimensions will lead to poor results.", set.Models[0], p.Dimensions)
	case d > p.Width:
		return chat.Errorf(chat.Invalid, "dimensions", "Dimensions must be at most %d, got %d.", p.Width, d)
	}
	return nil
}

// mode returns the tokens whose hidden states a task uses.
func (s *Service) mode(task string) engine.PoolingMode {
	if task == chat.TaskTokenEmbed || task == chat.TaskTokenClassify || s.text.Pooling().Mode == engine.PoolingAll {
		return engine.PoolingAll
	}
	return s.text.Pooling().Mode
}

// vectors lets the engine compute the inputs, at most AtOnce at a time. Each input is
// encoded right before it is submitted.
func (s *Service) vectors(ctx context.Context, a *Params, set *chat.Settings, inputs *inputs) (out []Vectors, u chat.Usage, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	mode, atOnce := s.mode(a.Task), max(1, s.text.Pooling().AtOnce)
	var streams []*engine.Stream
	var lengths []int
	defer func() {
		for _, st := range streams {
			st.Cancel() // has no effect on a stream that ended
		}
	}()
	for i := range inputs.n {
		for len(streams) < min(inputs.n, i+atOnce) {
			ids, items, err := inputs.tokens(ctx, len(streams))
			if err != nil {
				return nil, u, err
			}
			r := s.text.EngineRequest(a.ID, a.Priority, a.CacheSalt, set)
			r.Prompt, r.Pooling = ids, mode
			if len(items) > 0 {
				set.Vision.Attach(&r, items)
			}
			st, err := s.text.Submit(ctx, r)
			if err != nil {
				return nil, u, err
			}
			streams, lengths = append(streams, st[0]), append(lengths, len(ids))
		}
		v, cached, err := read(ctx, streams[i])
		if err != nil {
			return nil, u, err
		}
		if mode == engine.PoolingAll {
			v.Rows = lengths[i]
		}
		u.Prompt, u.Cached = u.Prompt+lengths[i], u.Cached+cached
		out = append(out, v)
	}
	return out, u, nil
}

// read waits for the only event of a pooling request. It returns the vectors and the
// number of cached prompt tokens.
func read(ctx context.Context, st *engine.Stream) (Vectors, int, error) {
	evs, err := st.Next(ctx)
	if err != nil {
		return Vectors{}, 0, err
	}
	for _, ev := range evs {
		switch {
		case ev.Err != nil:
			return Vectors{}, 0, ev.Err
		case ev.Finish == engine.FinishAbort:
			return Vectors{}, 0, chat.Errorf(chat.Unavailable, "", "The request was aborted: it took too long, or the server is shutting down.")
		case ev.Pooled != nil:
			return Vectors{Values: ev.Pooled}, ev.Cached, nil
		}
	}
	return Vectors{}, 0, engine.ErrDead
}
