package appliance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"vapp.dev/appliance/auditlog"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/schema"
)

// EngineConfig returns the configuration with which OpenEngine opens the planned engine.
func (p *Prepared) EngineConfig(h engine.Hooks, progress func(engine.Progress)) engine.Config {
	c := engine.Config{
		Options: p.Plan.Options, Model: p.Model, Opener: p.Opener,
		Facts: p.Plan.Facts, Account: p.Plan.Account, Hooks: h, Progress: progress,
	}
	if p.turns != nil {
		c.Turns = p.turns(p.Opener.Name())
	}
	return c
}

// load opens the engine and the tokenizer, compares the planned with the allocated bytes,
// and makes the server ready.
func (a *Appliance) load(ctx context.Context, progress func(engine.Progress)) error {
	start := time.Now()
	p := a.first
	if err := a.showPlan(p); err != nil {
		return err
	}
	if c := p.Profile.Serve.Idle; c != nil && c.Load == schema.OnRequest {
		a.restFirst()
	} else {
		progress, loaded := a.traces.Loading(progress)
		s, err := a.openServed(ctx, p, p.Profile, predecessor{}, progress)
		loaded(err)
		if err != nil {
			return err
		}
		a.reloader.admitFirst(s)
	}
	a.note(auditlog.Entry{Event: auditlog.Ready, Outcome: "ready", After: a.state()})
	a.report("READY=1", "STATUS=ready: "+a.url())
	a.log.Info("ready", "models", p.Profile.Serve.ServedModelName, "url", a.url(), "after", time.Since(start).Round(time.Millisecond).String())
	if a.cfg.OnReady != nil {
		a.cfg.OnReady()
	}
	return a.showUse()
}

// open loads weights and tokenizer at the same time. With w the weights are those.
func (p *Prepared) open(ctx context.Context, h engine.Hooks, w backend.PackedWeights, progress func(engine.Progress)) (*engine.Engine, *tokenizer.Tokenizer, error) {
	type loaded struct {
		t   *tokenizer.Tokenizer
		err error
	}
	tok := make(chan loaded, 1)
	go func() {
		t, err := loadTokenizer(p.Model)
		tok <- loaded{t, err}
	}()
	c := p.EngineConfig(h, progress)
	c.Weights = w
	eng, err := p.OpenEngine(ctx, c)
	got := <-tok
	if err == nil && got.err != nil {
		err = errors.Join(got.err, eng.Close())
	}
	if err != nil {
		return nil, nil, p.atCacheField(err)
	}
	debug.FreeOSMemory() // reading the files left as much garbage as the memory in use
	return eng, got.t, nil
}

func loadTokenizer(m *engine.Model) (*tokenizer.Tokenizer, error) {
	b, err := m.Checkpoint.TokenizerJSON()
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Source.Name, err)
	}
	return t, nil
}

// service returns the chat service of the loaded model.
func (p *Prepared) service(e *engine.Engine, l *adapters, t *tokenizer.Tokenizer, box tokenizer.Sandbox) *chat.Service {
	c := p.Model.Checkpoint
	cfg := chat.Config{
		Engine:     e,
		Text:       text{t},
		Vocabulary: t,
		ModelLen:   p.Plan.Options.MaxModelLen,
		ModelRoot:  p.Model.Source.Name,
		Generation: c.GenerationConfig(),
		Special:    c.SpecialTokens(),
		EOS:        c.EOSTokenIDs(),
		Limits:     sample.Limits{Vocab: p.Model.Family.Vocab(), Logprobs: engine.MaxLogprobs, Bias: engine.MaxBias},
		Sandbox:    sandbox(box),
		Grammars:   compiler(t, p.Model.Family.Vocab(), c.EOSTokenIDs(), plan.GrammarBytes(p.Plan.Options.MaxNumSeqs), box),
		Pooling:    p.pooling(),

		TextWorkers: plan.TextWorkers,
	}
	if l != nil {
		cfg.Adapters = l
	}
	return chat.New(cfg)
}

// compiler returns a grammar compiler with a memory limit in bytes. It tries grammars of
// unknown cost in a child process first.
func compiler(t *tokenizer.Tokenizer, vocab int, eos []int, memory int64, box tokenizer.Sandbox) *grammar.Compiler {
	c := grammar.NewCompiler(t, vocab, endings(eos))
	c.Limit(memory)
	if box.Exe != "" {
		specials := t.Specials()
		c.TryWith(func(ctx context.Context, s grammar.Spec, cost int, unneeded func() bool) (leave func(), bytes int64, err error) {
			return tokenizer.TryGrammar(ctx, box, s, specials, cost, unneeded)
		})
	}
	return c
}

func endings(ids []int) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// hooks returns the hooks of the metrics, and hooks that log packed-cache events, a missed
// target of inter-token latency, and steps without a CUDA graph. The latter two log in
// a goroutine, since they are called by the engine's loop.
func (a *Appliance) hooks(s *served) engine.Hooks {
	h := s.whenCounted(a.metrics.Hooks(a.metricsConfig(s.prepared)))
	h.Cache = a.logCache
	h.Blocks = a.blockHook(s)
	h.ITLMissed = func(alone, target time.Duration) {
		go a.log.Warn(fmt.Sprintf("decode alone takes %v, scheduler.itlTarget is %v: prompts get %d tokens of a step", round(alone), target, engine.MinPrefillChunk))
	}
	h.NoGraph = func(reason string, tokens int) {
		go a.log.Warn(fmt.Sprintf("a step of %d tokens ran without a CUDA graph, launch by launch: %s (vapp_graph_steps_total counts; cudagraph.captureSizes and cudagraph.mode decide)", tokens, reason))
	}
	return h
}

// round rounds a time to two or three digits.
func round(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Microsecond; unit /= 10 {
		if d >= 10*unit {
			return d.Round(unit)
		}
	}
	return d
}

// statistics logs the periodic statistics line.
func (a *Appliance) statistics(ctx context.Context) {
	a.metrics.LogFigures(ctx, a.log, func() time.Duration {
		return time.Duration(a.live.Load().profile.Serve.StatsInterval)
	})
}

// swapPages returns the pages of the first class that swap space of that many bytes has.
func (p *Prepared) swapPages(bytes int64) int {
	a := p.Plan.Account
	if p.rank != nil {
		a = p.rank.Account
	}
	return a.Pool.Pages(0, a.Slabs(bytes))
}
