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

// Engine runs requests of tokens; engine.Engine is one.
type Engine interface {
	// Submit queues a request and returns one Stream for each of its choices.
	Submit(context.Context, engine.Request) ([]*engine.Stream, error)
}

// Text converts between text and tokens.
type Text interface {
	// Encoding starts the encoding of a text. addSpecial adds the tokenizer's special
	// tokens, such as BOS.
	Encoding(text string, addSpecial bool) Encoding
	// Decode returns the text of tokens.
	Decode(ids []int32, skipSpecial bool) (string, error)
	// TokenText returns the text of a single token.
	TokenText(id int32) string
	// NewDecoder returns a decoder for one reply.
	NewDecoder(skipSpecial bool) Decoder
}

// Vocabulary describes the token ids of a tokenizer.
type Vocabulary interface {
	// VocabSize returns the highest id plus one.
	VocabSize() int
	// Token returns the vocabulary's spelling of an id, "" if it has no token.
	Token(id int32) string
	// TokenBytes returns the bytes that the token adds to a text.
	TokenBytes(id int32) []byte
}

// Decoder decodes tokens one by one and never returns part of a character.
type Decoder interface {
	// Push adds a token and returns the text that became complete.
	Push(id int32) string
	// Flush returns the rest of the text after the last token.
	Flush() string
}

// Config configures a Service; it does not change while the model is loaded.
type Config struct {
	Engine     Engine
	Text       Text
	Vocabulary Vocabulary
	ModelLen   int    // tokens of prompt and reply together
	ModelRoot  string // root in /v1/models
	Generation checkpoint.GenerationConfig
	Special    checkpoint.SpecialTokens
	EOS        []int // every id that ends a reply
	// Limits are the sizes of the engine's step buffers; Vocab is the number of logits.
	Limits sample.Limits
	// Adapters loads LoRA adapters; nil: the model has no slots for them.
	Adapters Adapters
	// Pooling describes a pooling model; nil: the model generates text.
	Pooling *PoolingConfig
	// Sandbox compiles a template that came with a request, to be rendered in a sandbox;
	// nil: such templates are refused.
	Sandbox func(ctx context.Context, source string) (Template, error)
	// Grammars compiles the constraints of replies; nil: requests with one are refused.
	Grammars Grammars
	Now      func() time.Time // nil: time.Now
	// TextWorkers is the number of text windows that are encoded, and templates that are
	// rendered, at the same time; at least 1.
	TextWorkers int
}

// Service answers requests with one model. Its only state is the text workers; it may be
// used from any goroutine.
type Service struct {
	cfg      Config
	eos      []int32          // the tokenizer's own EOS first
	maxRunes int              // maximum characters of a token
	workers  *workers         // for encoding and rendering
	marks    map[int32]string // markers of the dialects that are one token, by id
	markers  map[string]int32 // the same by text
	special  map[string]int32 // the markers among them that are special tokens
}

// New returns the service of a loaded model.
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

// eosIDs returns the ids that end a reply, the tokenizer's own EOS first.
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

// ModelLen returns the maximum number of tokens of prompt and reply together.
func (s *Service) ModelLen() int { return s.cfg.ModelLen }

// ModelRoot returns the source of the model, which /v1/models shows as root.
func (s *Service) ModelRoot() string { return s.cfg.ModelRoot }

// Now returns the time of the service's clock.
func (s *Service) Now() time.Time { return s.cfg.Now() }

// Start runs a request. It renders and encodes the prompts (prompt.go, render.go) and
// submits them to the engine; the Run that it returns decodes the tokens of each choice
// (choice.go, stop.go). The caller reads the Run to its end or closes it. When ctx ends,
// the choices are cancelled. Its errors are *Error.
func (s *Service) Start(ctx context.Context, r *Request) (*Run, error) {
	if s.cfg.Pooling != nil {
		return nil, s.UnsupportedTask("generate")
	}
	run := &Run{ID: r.params.ID, Model: r.model, Created: s.cfg.Now().Unix(), Role: "assistant", reportCached: r.settings.PromptTokensDetails, Sampling: s.sampling(r).effective()}
	if err := s.prompts(ctx, r, run); err != nil {
		return nil, AsError(err)
	}
	var err error
	if run.grammar, run.whole, err = s.compileGrammar(ctx, r, run); err != nil {
		return nil, AsError(err)
	}
	if run.grammar != nil {
		defer run.grammar.Release() // each state that submit begins keeps its own reference
	}
	ctx, run.stop = context.WithCancel(ctx)
	if err := s.loadMedia(ctx, r, run); err != nil {
		run.Close()
		return nil, AsError(err)
	}
	for i := range run.Prompts {
		if err := s.submit(ctx, r, run, i); err != nil {
			run.Close()
			return nil, AsError(err)
		}
	}
	for i := range run.Prompts {
		run.Prompts[i].text = "" // it may be long; a choice that echoes it keeps its own copy
	}
	run.open(ctx)
	return run, nil
}

// submit submits one prompt to the engine and adds its choices to the run.
func (s *Service) submit(ctx context.Context, r *Request, run *Run, prompt int) error {
	a, p := &r.params, &run.Prompts[prompt]
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
	params, err := s.engineParams(ctx, r, p)
	if err != nil {
		return err
	}
	req := s.EngineRequest(a.ID, a.Priority, a.CacheSalt, r.settings)
	req.Prompt, req.Params, req.N, req.Adapter = p.Tokens, params, a.N, r.adapter
	if len(p.Items) > 0 {
		r.settings.Vision.Attach(&req, p.Items)
	}
	if run.grammar != nil {
		req.Grammar, req.Preamble = run.grammar, s.lead(r, run, p)
	}
	if req.Thinking, err = s.thinking(ctx, r, p); err != nil {
		return err
	}
	submit := s.cfg.Engine.Submit
	if a.Beam {
		submit = func(ctx context.Context, req engine.Request) ([]*engine.Stream, error) { return s.beams(ctx, r, req) }
	}
	streams, err := submit(ctx, req)
	if err != nil {
		return a.requestError(err)
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

// randomHex returns that many random bytes as hexadecimal digits.
func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}
