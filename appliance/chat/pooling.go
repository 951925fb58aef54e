package chat

import (
	"context"

	"vapp.dev/engine"
)

// The tasks of a pooling model, by vLLM's names.
const (
	TaskEmbed         = "embed"          // one vector per text
	TaskClassify      = "classify"       // one class distribution per text
	TaskScore         = "score"          // the similarity of two texts
	TaskTokenEmbed    = "token_embed"    // one vector per token
	TaskTokenClassify = "token_classify" // one class distribution per token
)

// PoolingConfig describes the vectors of a pooling model, which gives them in place of
// text. Package pooling serves such models.
type PoolingConfig struct {
	Task       string // TaskEmbed or TaskClassify
	Mode       engine.PoolingMode
	Width      int      // numbers per vector of the engine
	Normalize  bool     // embeddings have length 1 unless a request overrides it
	Activation string   // of classes: softmax, sigmoid, identity
	Labels     []string // of the classes
	// Chosen: the model has one class, whose logit is the engine's last number minus the
	// first, where there are two.
	Chosen     bool
	Matryoshka bool
	Dimensions []int // to which embeddings may be truncated; nil: any
	AtOnce     int   // inputs of one request that the engine has at the same time; at least 1
}

// Pooling returns the configuration of a pooling model; nil: the model generates text.
func (s *Service) Pooling() *PoolingConfig { return s.cfg.Pooling }

// Tasks returns the tasks of a pooling model; nil: the model generates text.
func (s *Service) Tasks() []string {
	p := s.cfg.Pooling
	switch {
	case p == nil:
		return nil
	case p.Mode == engine.PoolingAll && p.Task == TaskEmbed:
		return []string{TaskTokenEmbed}
	case p.Mode == engine.PoolingAll:
		return []string{TaskTokenClassify}
	case p.Task == TaskEmbed:
		return []string{TaskEmbed, TaskTokenEmbed, TaskScore}
	case len(p.Labels) == 1:
		return []string{TaskClassify, TaskTokenClassify, TaskScore}
	}
	return []string{TaskClassify, TaskTokenClassify}
}

// UnsupportedTask returns the error for a task that the model does not support.
func (s *Service) UnsupportedTask(task string) error {
	if tasks := s.Tasks(); tasks != nil {
		return Errorf(Unsupported, "", "The model does not support task %q: it does %v.", task, tasks)
	}
	return Errorf(Unsupported, "", "The model does not support task %q: it generates text (model.runner of the profile).", task)
}

// What follows is what package pooling uses of the pipeline from text to tokens. The errors
// of these methods may be without a Kind; AsError adds it.

// RenderText returns the prompt text of a conversation that CheckConversation accepted.
func (s *Service) RenderText(ctx context.Context, c *Conversation, set *Settings) (string, error) {
	return s.render(ctx, c, set)
}

// CheckInput refuses tokens outside the vocabulary and texts that are longer than the
// model's context can be. truncated: the request truncates its inputs.
func (s *Service) CheckInput(p Prompt, truncated bool) error {
	if err := s.inVocabulary("input", p.Tokens); err != nil {
		return err
	}
	return s.preCheck(p.Text, nil, truncated)
}

// Encode returns the tokens of a prompt and their number, which is larger than len(ids) for
// a prompt far above the context length. It refuses a prompt without tokens. templated: the
// text was rendered by a chat template, whose own BOS is not doubled.
func (s *Service) Encode(ctx context.Context, p Prompt, addSpecial, templated bool) (ids []int32, n int, err error) {
	return s.encode(ctx, p, addSpecial, templated, tokenLimit{most: s.maxText()})
}

// EncodePlain returns the tokens of a text without special tokens.
func (s *Service) EncodePlain(ctx context.Context, text string) ([]int32, error) {
	ids, _, err := s.encodeText(ctx, text, false, tokenLimit{most: s.maxText()})
	return ids, err
}

// Submit queues a request of the engine.
func (s *Service) Submit(ctx context.Context, r engine.Request) ([]*engine.Stream, error) {
	return s.cfg.Engine.Submit(ctx, r)
}

// EngineRequest returns an engine request with a fresh id that begins with id, and with the
// fields that all requests share.
func (s *Service) EngineRequest(id string, priority int, salt *string, set *Settings) engine.Request {
	r := engine.Request{ID: id + "-" + randomHex(4), ReplyID: id, Priority: priority}
	if salt != nil {
		r.Salt = *salt
	}
	if t := set.RequestTimeout; t > 0 {
		r.Deadline = s.cfg.Now().Add(t)
	}
	return r
}
