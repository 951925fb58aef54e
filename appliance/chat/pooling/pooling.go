package chat

import (
	"context"
	"slices"

	"vapp.dev/engine"
)

// The tasks of a model that pools, in vLLM's words.
const (
	TaskEmbed         = "embed"          // one vector of a text
	TaskClassify      = "classify"       // the classes of a text
	TaskScore         = "score"          // how well two texts go together
	TaskTokenEmbed    = "token_embed"    // a vector of each token
	TaskTokenClassify = "token_classify" // the classes of each token
)

// Pooling is what a model gives in place of text.
type Pooling struct {
	Task       string // TaskEmbed or TaskClassify
	How        engine.Pool
	Width      int      // numbers that the engine gives for a token
	Normalize  bool     // embeddings have length 1 unless a request says otherwise
	Activation string   // of classes: softmax, sigmoid, identity
	Labels     []string // of the classes
	// Chosen says that the one class is the engine's last number less the first, where
	// there are two.
	Chosen     bool
	Matryoshka bool
	Dimensions []int // that embeddings may be cut to; nil: any
	AtOnce     int   // inputs of a request that are with the engine at once; at least 1
}

// Tasks are those the model can do; nil: it generates.
func (s *Service) Tasks() []string {
	p := s.cfg.Pooling
	switch {
	case p == nil:
		return nil
	case p.How == engine.PoolAll && p.Task == TaskEmbed:
		return []string{TaskTokenEmbed}
	case p.How == engine.PoolAll:
		return []string{TaskTokenClassify}
	case p.Task == TaskEmbed:
		return []string{TaskEmbed, TaskTokenEmbed, TaskScore}
	case len(p.Labels) == 1:
		return []string{TaskClassify, TaskTokenClassify, TaskScore}
	}
	return []string{TaskClassify, TaskTokenClassify}
}

// Labels are the names of a classifier's classes.
func (s *Service) Labels() []string {
	if s.cfg.Pooling == nil {
		return nil
	}
	return s.cfg.Pooling.Labels
}

// PoolAsk asks for the hidden states of texts, before it is checked.
type PoolAsk struct {
	ID    string // names request and reply, such as embd-…
	Model string // "": the first served one
	// Task is one of the model's; "": that of each token, as vLLM's /pooling has it.
	Task string

	Chat   *Conversation // in place of Inputs
	Inputs []Prompt
	// pair makes an input of a pair of texts, in place of Inputs.
	pair  func(ctx context.Context, i int) (string, error)
	pairs int

	AddSpecialTokens bool
	Truncate         *int   // truncate_prompt_tokens
	TruncationSide   string // left, right; "": right
	Dimensions       *int
	Activate         *bool // use_activation: normalised, or classes as probabilities; nil: as the model does
	Priority         int
	CacheSalt        *string
}

// Pooled is what was asked for, one Vectors for each input.
type Pooled struct {
	ID, Model string
	Created   int64
	Usage     Usage
	Data      []Vectors
}

// Vectors are the numbers of one input: one vector, or one for each token.
type Vectors struct {
	Rows   int // 0: one vector
	Values []float32
}

// Width is how many numbers a vector has.
func (v Vectors) Width() int { return len(v.Values) / max(1, v.Rows) }

// Row is one of the vectors.
func (v Vectors) Row(i int) []float32 {
	w := v.Width()
	return v.Values[i*w : (i+1)*w]
}

// maxInputs bounds the texts of one request.
const maxInputs = maxChoicesInAll

// Pool answers a request for hidden states. Its errors are *Error.
func (s *Service) Pool(ctx context.Context, a PoolAsk, set *Settings) (*Pooled, error) {
	model, err := set.Name(a.Model)
	if err != nil {
		return nil, err
	}
	if a.Task, err = s.task(a.Task); err != nil {
		return nil, err
	}
	if err := s.checkPool(&a, set); err != nil {
		return nil, err
	}
	inputs, err := s.inputs(ctx, &a, set)
	if err != nil {
		return nil, AsError(err)
	}
	out := &Pooled{ID: a.ID, Model: model, Created: s.cfg.Now().Unix()}
	out.Data, out.Usage, err = s.rows(ctx, &a, set, inputs)
	if err != nil {
		return nil, AsError(err)
	}
	out.Usage.TellCached = set.PromptTokensDetails
	for i := range out.Data {
		s.shape(&a, &out.Data[i])
	}
	return out, nil
}

// task checks the task that is asked for.
func (s *Service) task(asked string) (string, error) {
	tasks := s.Tasks()
	if asked == "" && tasks != nil {
		asked = tasks[min(1, len(tasks)-1)]
	}
	if !slices.Contains(tasks, asked) {
		return "", s.cannot(asked)
	}
	return asked, nil
}

// cannot refuses a task that the model does not do.
func (s *Service) cannot(task string) error {
	if tasks := s.Tasks(); tasks != nil {
		return Errorf(Unsupported, "", "The model does not support task %q: it does %v.", task, tasks)
	}
	return Errorf(Unsupported, "", "The model does not support task %q: it generates text (model.runner of the profile).", task)
}

func (s *Service) checkPool(a *PoolAsk, set *Settings) error {
	p := s.cfg.Pooling
	if err := checkScheduling(&Ask{Priority: a.Priority, CacheSalt: a.CacheSalt}, set); err != nil {
		return err
	}
	switch {
	case a.Chat == nil && len(a.Inputs) == 0 && a.pair == nil:
		return Errorf(Malformed, "input", "`input` must hold at least one text.")
	case len(a.Inputs) > maxInputs:
		return invalid("input", "one request may have at most %d inputs, got %d.", maxInputs, len(a.Inputs))
	case a.TruncationSide != "" && a.TruncationSide != "left" && a.TruncationSide != "right":
		return Errorf(Malformed, "truncation_side", "`truncation_side` must be left or right, got %q.", a.TruncationSide)
	case a.Dimensions == nil:
		return nil
	}
	d := *a.Dimensions
	switch {
	case p.Task != TaskEmbed:
		return invalid("dimensions", "dimensions is currently not supported for task %q.", a.Task)
	case d < 1:
		return invalid("dimensions", "Dimensions must be greater than 0, got %d.", d)
	case !p.Matryoshka && p.Dimensions == nil:
		return invalid("dimensions", "Model %q does not support matryoshka representation, changing output dimensions will lead to poor results.", set.Models[0])
	case p.Dimensions != nil && !slices.Contains(p.Dimensions, d):
		return invalid("dimensions", "Model %q only supports %v matryoshka dimensions, use other output dimensions will lead to poor results.", set.Models[0], p.Dimensions)
	case d > p.Width:
		return invalid("dimensions", "Dimensions must be at most %d, got %d.", p.Width, d)
	}
	return nil
}

// how is which tokens' rows a task is made of.
func (s *Service) how(task string) engine.Pool {
	if task == TaskTokenEmbed || task == TaskTokenClassify || s.cfg.Pooling.How == engine.PoolAll {
		return engine.PoolAll
	}
	return s.cfg.Pooling.How
}

// rows has the engine compute the inputs, at most AtOnce of them at a time; each is
// encoded when its turn comes.
func (s *Service) rows(ctx context.Context, a *PoolAsk, set *Settings, inputs *inputs) (out []Vectors, u Usage, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	how, atOnce := s.how(a.Task), max(1, s.cfg.Pooling.AtOnce)
	var streams []*engine.Stream
	var lengths []int
	defer func() {
		for _, st := range streams {
			st.Cancel() // those that have ended do not mind
		}
	}()
	for i := range inputs.n {
		for len(streams) < min(inputs.n, i+atOnce) {
			ids, err := inputs.tokens(ctx, len(streams))
			if err != nil {
				return nil, u, err
			}
			st, err := s.submitPool(ctx, a, set, ids, how)
			if err != nil {
				return nil, u, err
			}
			streams, lengths = append(streams, st), append(lengths, len(ids))
		}
		v, cached, err := read(ctx, streams[i])
		if err != nil {
			return nil, u, err
		}
		if how == engine.PoolAll {
			v.Rows = lengths[i]
		}
		u.Prompt, u.Cached = u.Prompt+lengths[i], u.Cached+cached
		out = append(out, v)
	}
	return out, u, nil
}

func (s *Service) submitPool(ctx context.Context, a *PoolAsk, set *Settings, ids []int32, how engine.Pool) (*engine.Stream, error) {
	r := engine.Request{ID: a.ID + "-" + randomHex(4), Prompt: ids, Pool: how, Priority: a.Priority}
	if a.CacheSalt != nil {
		r.Salt = *a.CacheSalt
	}
	if t := set.RequestTimeout; t > 0 {
		r.Deadline = s.cfg.Now().Add(t)
	}
	st, err := s.cfg.Engine.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	return st[0], nil
}

// read waits for the one event of a request that pools.
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
			return Vectors{}, 0, Errorf(Unavailable, "", "The request was aborted: it took too long, or the server is shutting down.")
		case ev.Pooled != nil:
			return Vectors{Values: ev.Pooled}, ev.Cached, nil
		}
	}
	return Vectors{}, 0, orUnknown(nil)
}
