package appliance

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/appliance/media/load"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/schema"
)

// live holds everything that may change while requests run. A new live is completely
// built before it replaces the old one, so that a change applies as a whole or not at all.
type live struct {
	profile *schema.Profile
	model   *engine.Model    // that l was made for; nil for one without a server
	source  string           // of the chat template
	api     api.Settings     // a request keeps those it started with
	loader  *load.Loader     // api.Chat.Vision; nil: the profile allows no images
	cert    *tls.Certificate // nil: plain HTTP
}

// with returns l with the keys and the certificate of a.
func (l live) with(a *access) *live {
	l.api.Keys, l.api.Guarded, l.cert = a.keys, a.guarded, a.pair.pair
	return &l
}

// of returns l with the service of s, which is for the model that l was made for.
func (l live) of(s *served) *live {
	if s != nil {
		l.api.Service, l.api.Chat.Adapter = s.service, s.service.HasAdapter
	}
	return &l
}

// newLive returns the live of a profile, without keys and certificate, which with adds, and without the service, which
// of adds.
func (a *Appliance) newLive(p *schema.Profile, m *engine.Model) (*live, error) {
	if err := CheckParsers(p); err != nil {
		return nil, err
	}
	if err := CheckAdapters(p); err != nil {
		return nil, err
	}
	if err := CheckTarget(p); err != nil {
		return nil, err
	}
	if err := plan.CheckITLTarget(p, m); err != nil {
		return nil, err
	}
	l := &live{profile: p, model: m, api: settings(p)}
	if old := a.live.Load(); old != nil && old.model == m && reflect.DeepEqual(old.profile.Multimodal, p.Multimodal) {
		l.loader, l.api.Chat.Vision = old.loader, old.api.Chat.Vision // with the images that it keeps
	}
	var err error
	l.source, err = l.readTemplates(p, m, &a.media)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// readTemplates compiles the profile's template or the model's templates, and returns the
// source of the first. It also reads how the model's images are prepared, unless l has their loader, which shares memory.
func (l *live) readTemplates(p *schema.Profile, m *engine.Model, memory *load.Memory) (source string, err error) {
	source = m.Checkpoint.ChatTemplate()
	if t := p.Parsers.ChatTemplate; t != "" {
		if source, err = l.readTemplate(p, t); err != nil {
			return "", err
		}
	}
	if l.api.Chat.Template, err = compile(source); err != nil {
		return "", l.refuse(p, err)
	}
	if l.loader == nil {
		if l.loader, err = newVision(p, m, memory); err != nil {
			return "", err
		}
		if l.loader != nil { // not an interface of a nil pointer
			l.api.Chat.Vision = l.loader
		}
	}
	l.api.Chat.ScoreTemplate = p.Parsers.ChatTemplate != ""
	if p.Parsers.ChatTemplate == "" {
		if l.api.Chat.ToolTemplate, err = compile(m.Checkpoint.ChatTemplates()["tool_use"]); err != nil {
			return "", l.refuse(p, err)
		}
	}
	return source, nil
}

// CheckParsers returns an error for unknown names of parsers.
func CheckParsers(p *schema.Profile) error {
	w := p.Parsers
	if err := dialect.Check(w.Reasoning, ""); err != nil {
		return p.Reject("parsers.reasoning", "%v", err)
	}
	if err := dialect.Check(w.Reasoning, w.ToolCall); err != nil {
		return p.Reject("parsers.toolCall", "%v", err)
	}
	if w.AutoToolChoice && w.ToolCall == "" {
		return p.Reject("parsers.autoToolChoice", "nothing reads the calls: name a parser in parsers.toolCall")
	}
	return nil
}

// compile compiles a template; nil for "".
func compile(source string) (chat.Template, error) {
	if source == "" {
		return nil, nil
	}
	t, err := tokenizer.NewTemplate(source, tokenizer.Limits{MemoryBytes: plan.TextRender})
	if err != nil {
		return nil, err
	}
	return template{t}, nil
}

// refuse returns a template's error with the field or model it comes from.
func (l *live) refuse(p *schema.Profile, err error) error {
	if p.Parsers.ChatTemplate == "" {
		return fmt.Errorf("model %s: chat template: %w; set parsers.chatTemplate to another one", p.Model.Source, err)
	}
	return p.Reject("parsers.chatTemplate", "%v", err)
}

// settings returns the settings for requests of a profile, without keys and templates.
func settings(p *schema.Profile) api.Settings {
	s, l, k, c := p.Sampling, p.Serve.Limits, p.Serve.PerKey, p.Serve.CORS
	return api.Settings{
		GuardMetrics:  p.Serve.GuardMetrics,
		MaxBodyBytes:  int64(l.MaxBodyBytes),
		MaxConcurrent: l.MaxConcurrentRequests,
		AccessLog:     p.Serve.AccessLog,
		LogRequests:   p.Serve.LogRequests,
		Sleep:         p.Serve.Sleep,
		LoadAdapters:  p.LoRA != nil && p.LoRA.AllowRuntimeUpdating,
		NoDocs:        !p.Serve.Docs,

		RequestIDHeaders:  p.Serve.RequestIDHeaders,
		ForceIncludeUsage: p.Serve.ForceIncludeUsage,
		ReasoningContent:  p.Parsers.ReasoningContent,
		BodyTimeout:       time.Duration(p.Serve.Timeouts.Body),
		WriteTimeout:      time.Duration(p.Serve.Timeouts.Write),
		PerKey: api.PerKey{
			MaxConcurrent: k.MaxConcurrentRequests, RequestsPerMinute: k.RequestsPerMinute, TokensPerMinute: k.TokensPerMinute,
		},
		CORS: api.CORS{
			Origins: c.AllowedOrigins, Methods: c.AllowedMethods, Headers: c.AllowedHeaders, Credentials: c.AllowCredentials,
		},
		Hosts: api.Hosts{Allowed: p.Serve.AllowedHosts, Listen: p.Serve.Host},
		Chat: chat.Settings{
			Models:         servedNames(p),
			MaxChoices:     l.MaxChoices,
			MaxSequences:   maxSequences(p),
			MaxLogprobs:    l.MaxLogprobs,
			RequestTimeout: time.Duration(l.RequestTimeout),
			Sampling: chat.Sampling{
				Temperature: s.Temperature, TopP: s.TopP, MinP: s.MinP, RepetitionPenalty: s.RepetitionPenalty,
				TopK: s.TopK, MaxTokens: s.MaxTokens,
			},
			TemplateKwargs:           templateKwargs(p.Parsers.ChatTemplateKwargs),
			GenerationConfig:         s.GenerationConfig == "auto",
			TrustRequestChatTemplate: p.Parsers.TrustRequestChatTemplate,
			PromptTokensDetails:      p.Serve.PromptTokensDetails,
			PriorityScheduling:       p.Scheduler.Policy == "priority",
			Reasoning:                p.Parsers.Reasoning,
			Tools:                    p.Parsers.ToolCall,
			AutoToolChoice:           p.Parsers.AutoToolChoice,
			ExcludeToolsWhenNone:     p.Parsers.ExcludeToolsWhenNone,
			DialectPrompt:            dialect.Harmony(p.Parsers.Reasoning, p.Parsers.ToolCall) && p.Parsers.ChatTemplate == "",
		},
	}
}

// maxSequences returns how many sequences run and wait at most; 0: any number waits.
func maxSequences(p *schema.Profile) int {
	if p.Serve.Limits.MaxQueue == 0 {
		return 0
	}
	return p.Scheduler.MaxNumSeqs + p.Serve.Limits.MaxQueue
}

// templateKwargs returns the profile's template variables in the form of a request.
func templateKwargs(vars map[string]any) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(vars))
	for name, v := range vars {
		out[name], _ = json.Marshal(v) // no error: the schema allows JSON values only
	}
	return out
}

// isTemplate reports whether parsers.chatTemplate is a template and not a path.
func isTemplate(t string) bool { return strings.Contains(t, "{{") || strings.Contains(t, "{%") }

// readTemplate returns t if it is a template, else the content of the file t.
func (l *live) readTemplate(p *schema.Profile, t string) (string, error) {
	if isTemplate(t) {
		return t, nil
	}
	b, err := readSmall(p.Path(t))
	if err != nil {
		return "", p.Reject("parsers.chatTemplate", "%v", err)
	}
	return string(b), nil
}

// keyed reports whether requests need a key.
func (l *live) keyed() bool { return l.api.Guarded || len(l.api.Keys) > 0 }

// publish makes l effective for new requests and connections.
func (a *Appliance) publish(l *live) {
	a.media.Use(l.loader)
	a.audit.setInForce(l.profile.Hash(), a.reloader.now())
	l.api.Hosts.Loopback = a.loopback()
	a.warnOpen(a.live.Swap(l), l)
	a.server.SetSettings(l.api)
}

// apply makes l effective: publish for requests, then log level, store limits, metrics
// and engine.
func (a *Appliance) apply(l *live) {
	a.level.Set(levels[l.profile.Log.Level])
	a.setFormat(l.profile.Log.Format)
	a.publish(l)
	if r := l.profile.Serve.Responses; r != nil && a.responses != nil {
		a.responses.SetLimits(responseLimits(r))
	}
	if c := l.profile.Log.Audit; c != nil && a.auditLog != nil {
		a.auditLog.SetLimits(auditLimits(c))
	}
	target := l.profile.Scheduler.ITLTarget.Time()
	a.metrics.SetITLTarget(target)
	if e := a.engine(); e != nil {
		e.SetITLTarget(target)
		e.SetMaxQueue(l.profile.Serve.Limits.MaxQueue)
	}
}
