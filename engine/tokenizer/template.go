package tokenizer

import (
	"encoding/json"
	"time"
)

// Limits are the limits of one render; 0 is the default.
type Limits struct {
	Steps       uint64        // instructions, 10 million by default
	OutputBytes int           // rendered text, 16 MiB by default
	MemoryBytes int           // live memory besides vars, 128 MiB by default
	Time        time.Duration // 10 s by default

	smallStack bool // render on the caller's stack: for a process that may crash
}

const (
	defaultSteps  = 10_000_000
	defaultOutput = 16 << 20
	defaultMemory = 128 << 20
	defaultTime   = 10 * time.Second
	maxTemplate   = 1 << 20 // bytes of a template's source
)

func (l Limits) orDefault() Limits {
	if l.Steps == 0 {
		l.Steps = defaultSteps
	}
	if l.OutputBytes <= 0 {
		l.OutputBytes = defaultOutput
	}
	if l.MemoryBytes <= 0 {
		l.MemoryBytes = defaultMemory
	}
	if l.Time <= 0 {
		l.Time = defaultTime
	}
	return l
}

// Template is a compiled chat template that renders like transformers' Jinja2. It is safe for use
// by many goroutines.
//
// Known differences: |safe does not mark text as escaped; tojson accepts the results of map and
// select, while Python refuses generators; self is undefined; and the filters urlencode, urlize,
// wordcount, wordwrap, truncate, striptags, xmlattr, filesizeformat, forceescape and random are
// missing, which is an error of KindTemplate.
//
// A render has limits on steps, output, memory, time and depth, so that the template of an
// untrusted checkpoint cannot harm the process. Templates that come with a request are rendered by
// a Sandbox in addition.
type Template struct {
	obj    *lease
	limits Limits
}

// NewTemplate compiles a chat template. The error is a *TemplateError with the
// line of the template.
func NewTemplate(source string, l Limits) (*Template, error) {
	if len(source) > maxTemplate {
		return nil, failure(KindTemplate, 0, "the template is over 1 MiB")
	}
	l = l.orDefault()
	p, err := templateNew(source, l)
	if err != nil {
		return nil, err
	}
	return &Template{newLease(p, "the template", templateFree), l}, nil
}

// Close frees the template once no render is using it.
func (t *Template) Close() { t.obj.close() }

// The content formats of messages that a template may expect.
const (
	ContentString = "string" // one text
	ContentOpenAI = "openai" // a list of {"type": "text", "text": …} and the like
)

// ContentFormat returns the content format that the template expects, determined like in vLLM:
// ContentOpenAI if the template loops over the content of a message, else ContentString.
func (t *Template) ContentFormat() string {
	p, err := t.obj.hold()
	if err != nil {
		return ContentString
	}
	defer t.obj.release()
	if templateWantsParts(p) {
		return ContentOpenAI
	}
	return ContentString
}

// Render renders the template with vars at the current time.
func (t *Template) Render(vars any) (string, error) { return t.RenderAt(time.Now(), vars) }

// RenderAt renders the template with strftime_now set to the wall clock of now. vars is a JSON
// object as []byte or json.RawMessage, or a value that marshals to one: messages, tools, documents,
// add_generation_prompt, bos_token, eos_token and the request's own keys. Their order is kept. The
// error is a *TemplateError; one of KindRaised carries the message of raise_exception.
func (t *Template) RenderAt(now time.Time, vars any) (string, error) {
	b, err := marshalVars(vars)
	if err != nil {
		return "", err
	}
	return t.render(localSeconds(now), b)
}

func (t *Template) render(now int64, vars []byte) (string, error) {
	p, err := t.obj.hold()
	if err != nil {
		return "", err
	}
	defer t.obj.release()
	return templateRender(p, vars, now, t.limits)
}

// localSeconds returns the wall clock of t as Unix seconds, as if its zone were UTC.
func localSeconds(t time.Time) int64 {
	_, offset := t.Zone()
	return t.Unix() + int64(offset)
}

func marshalVars(vars any) ([]byte, error) {
	switch v := vars.(type) {
	case []byte:
		return v, nil
	case json.RawMessage:
		return v, nil
	}
	b, err := json.Marshal(vars)
	if err != nil {
		return nil, failure(KindVars, 0, err.Error())
	}
	return b, nil
}
