package chat

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/sample"
)

// Engine runs token requests; engine.Engine is one.
type Engine interface {
	// Submit queues a request and returns one Stream for each of its choices.
	Submit(context.Context, engine.Request) ([]*engine.Stream, error)
}

// Text turns text into tokens and back.
type Text interface {
	// Encoding starts the encoding of a text; addSpecial adds what the tokenizer puts
	// around it.
	Encoding(text string, addSpecial bool) Encoding
	// Decode is the text of tokens.
	Decode(ids []int32, skipSpecial bool) (string, error)
	// TokenText is one token alone, decoded.
	TokenText(id int32) string
	// NewDecoder decodes a reply token by token.
	NewDecoder(skipSpecial bool) Decoder
}

// Vocabulary is what a tokenizer knows of each id.
type Vocabulary interface {
	// VocabSize is one more than the highest id.
	VocabSize() int
	// Token is the vocabulary's own spelling, "" where an id has no token.
	Token(id int32) string
	// TokenBytes is what the token adds to a text.
	TokenBytes(id int32) []byte
}

// Decoder gives the text of tokens one after the other and never half a
// character.
type Decoder interface {
	// Push adds a token and returns the text that is now complete.
	Push(id int32) string
	// Flush returns what is left at the end.
	Flush() string
}

// Config is what a Service stands on; it stays as long as the model is loaded.
type Config struct {
	Engine     Engine
	Text       Text
	Vocabulary Vocabulary
	ModelLen   int    // tokens of prompt and reply together
	ModelRoot  string // what /v1/models calls root
	Generation checkpoint.GenerationConfig
	Special    checkpoint.SpecialTokens
	EOS        []int // every id that ends a reply
	// Limits are what the engine's step buffers hold; Vocab ids have logits.
	Limits sample.Limits
	// Pooling is what the model gives in place of text; nil: it generates.
	Pooling *Pooling
	// Sandbox compiles a template that came with a request, to be rendered where
	// it can do no harm; nil: such templates are refused.
	Sandbox func(ctx context.Context, source string) (Template, error)
	// Grammars compiles what replies must be; nil: such requests are refused.
	Grammars Grammars
	Now      func() time.Time // nil: time.Now
	// TextWorkers is how many windows of text are encoded, and templates rendered, at
	// the same time; at least 1.
	TextWorkers int
}

// Service answers requests with one model. It holds no state of its own but the
// workers of text, and may be used from any goroutine.
type Service struct {
	cfg      Config
	eos      []int32          // the tokenizer's own first
	maxRunes int              // most characters a token stands for
	workers  *workers         // encode and render all text
	marks    map[int32]string // the markers of dialects that are one token
	markers  map[string]int32 // and the other way round
	special  map[string]int32 // those of them that no text holds
}

// New makes the service of a loaded model.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Service{cfg: c, maxRunes: 1, eos: eosIDs(c), workers: newWorkers(c.TextWorkers)}
	s.marks, s.markers = markerIDs(c.Vocabulary)
	s.special = specials(c.Vocabulary, s.markers)
	for id := range int32(c.Vocabulary.VocabSize()) {
		s.maxRunes = max(s.maxRunes, len(c.Vocabulary.TokenBytes(id)))
	}
	return s
}

// eosIDs puts the tokenizer's own EOS first.
func eosIDs(c Config) []int32 {
	all := make([]int32, len(c.EOS))
	for i, id := range c.EOS {
		all[i] = int32(id)
	}
	if own := int32(c.Special.EOS.ID); own >= 0 && c.Special.EOS.Text != "" {
		all = append([]int32{own}, slices.DeleteFunc(all, func(id int32) bool { return id == own })...)
	}
	return all
}

// ModelLen is how many tokens prompt and reply may have together.
func (s *Service) ModelLen() int { return s.cfg.ModelLen }

// ModelRoot is where the model came from.
func (s *Service) ModelRoot() string { return s.cfg.ModelRoot }

// Now is the service's clock.
func (s *Service) Now() time.Time { return s.cfg.Now() }

// Start is the one pipeline: prompts renders and encodes (prompt.go, render.go),
// submit hands tokens to the engine, and the Run it returns turns each choice's
// tokens back into text (choice.go, stop.go). Its errors are *Error. The
// caller reads the Run to its end or closes it; when ctx ends the choices are
// cancelled.
func (s *Service) Start(ctx context.Context, r *Request) (*Run, error) {
	if s.cfg.Pooling != nil {
		return nil, s.cannot("generate")
	}
	run := &Run{ID: r.ask.ID, Model: r.model, Created: s.cfg.Now().Unix(), Role: "assistant", tellCached: r.settings.PromptTokensDetails, Sampling: s.layered(r).inForce()}
	if err := s.prompts(ctx, r, run); err != nil {
		return nil, AsError(err)
	}
	var err error
	if run.grammar, run.whole, err = s.structure(ctx, r, run); err != nil {
		return nil, AsError(err)
	}
	if run.grammar != nil {
		defer run.grammar.Release() // the states that submit begins hold it
	}
	ctx, run.stop = context.WithCancel(ctx)
	for i := range run.Prompts {
		if err := s.submit(ctx, r, run, i); err != nil {
			run.Close()
			return nil, AsError(err)
		}
	}
	for i := range run.Prompts {
		run.Prompts[i].text = "" // it may be long; a choice that echoes it has its own
	}
	run.open(ctx)
	return run, nil
}

// submit hands one prompt to the engine and adds its choices to the run.
func (s *Service) submit(ctx context.Context, r *Request, run *Run, prompt int) error {
	a, p := &r.ask, &run.Prompts[prompt]
	if p.nothing {
		for range a.N {
			c, err := s.choice(r, run, prompt, nil)
			if err != nil {
				return err
			}
			run.choices = append(run.choices, c)
		}
		return nil
	}
	params, err := s.params(ctx, r, p)
	if err != nil {
		return err
	}
	req := engine.Request{
		ID: a.ID + "-" + randomHex(4), Prompt: p.Tokens, Params: params, N: a.N, Priority: a.Priority,
	}
	if run.grammar != nil {
		req.Grammar, req.Preamble = run.grammar, s.lead(r, run, p)
	}
	if req.Thinking, err = s.thinking(ctx, r, p); err != nil {
		return err
	}
	if a.CacheSalt != nil {
		req.Salt = *a.CacheSalt
	}
	if t := r.settings.RequestTimeout; t > 0 {
		req.Deadline = s.cfg.Now().Add(t)
	}
	ask := s.cfg.Engine.Submit
	if a.Beam {
		ask = func(ctx context.Context, req engine.Request) ([]*engine.Stream, error) { return s.beams(ctx, r, req) }
	}
	streams, err := ask(ctx, req)
	if err != nil {
		return a.explain(err)
	}
	for i, st := range streams {
		c, err := s.choice(r, run, prompt, st)
		if err != nil {
			for _, st := range streams[i:] {
				st.Cancel()
			}
			return err
		}
		run.choices = append(run.choices, c)
	}
	return nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}
