package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind classifies the errors of this package.
type Kind int

const (
	// KindArgument is an invalid call: text that is not UTF-8, a negative id, a mask that is too
	// short.
	KindArgument Kind = iota + 1
	// KindTokenizer is an invalid tokenizer.json, or a text that it cannot encode or decode.
	KindTokenizer
	// KindTemplate is a syntax error in a template or a failure to render it.
	KindTemplate
	// KindRaised is raise_exception() in a template: its message is for the author of the
	// conversation.
	KindRaised
	// KindSteps is a render that exceeded its limit of steps.
	KindSteps
	// KindOutput is a render whose text exceeded its limit.
	KindOutput
	// KindVars is a template context that is not a JSON object.
	KindVars
	// KindGrammar is a grammar that cannot be compiled, or a token that it does not allow.
	KindGrammar
	// KindPanic is a panic in the native library; the process is not affected.
	KindPanic
	// KindMemory is a render that exceeded its limit of memory, or of lists and dicts.
	KindMemory
	// KindTime is a render that exceeded its limit of time.
	KindTime
	// KindSandbox is a sandbox process that could not be started or that failed.
	KindSandbox
	// KindClosed is a use after Close.
	KindClosed
	// KindNoCgo is a binary that was built without cgo.
	KindNoCgo
	// KindLength is a long text in which this tokenizer has no safe position to divide it.
	KindLength
	// KindBusy is a job that found no free slot because of other jobs.
	KindBusy
	// KindUnavailable is a process or thread that the system cannot run now: it lacks files,
	// threads or memory, or killed the process.
	KindUnavailable
	// KindUnsupported is a feature that this operating system lacks.
	KindUnsupported
)

var kindNames = [...]string{"", "argument", "tokenizer", "chat template", "chat template", "chat template", "chat template",
	"chat template", "grammar", "text library", "chat template", "chat template", "template sandbox", "text library", "text library",
	"tokenizer", "child process", "child process", "template sandbox"}

// String returns the name of the failed component.
func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Error is a one-line error of a tokenizer or a grammar.
type Error struct {
	Kind Kind
	Msg  string
}

func (e *Error) Error() string { return e.Kind.String() + ": " + e.Msg }

// TemplateError is a one-line error of a chat template or of its rendering. Msg quotes the
// conversation only in messages that the template itself raised.
type TemplateError struct {
	Kind Kind
	Line int // of the template, from 1; 0: unknown
	Msg  string
}

func (e *TemplateError) Error() string {
	if e.Line > 0 && e.Kind != KindRaised {
		return fmt.Sprintf("%s: line %d: %s", e.Kind, e.Line, e.Msg)
	}
	return e.Kind.String() + ": " + e.Msg
}

const (
	maxMsg    = 500  // bytes of an error's message
	maxRaised = 4096 // bytes of a message that a template raised
)

// failure returns the error for a code of the native library.
func failure(kind Kind, line int, msg string) error {
	switch kind {
	case KindRaised:
		return &TemplateError{kind, line, clip(msg, maxRaised)}
	case KindTemplate, KindSteps, KindOutput, KindVars, KindMemory, KindTime:
		return &TemplateError{kind, line, oneLine(msg)}
	case KindGrammar:
		msg = reason(msg)
	}
	return &Error{kind, oneLine(msg)}
}

// reason moves the reason of a grammar error to the front, because the library first quotes the
// whole grammar.
func reason(msg string) string {
	const mark = "error: "
	if at := strings.LastIndex(msg, mark); len(msg) > maxMsg && at >= 0 {
		return clip(msg, maxMsg/4) + " … " + msg[at+len(mark):]
	}
	return msg
}

// asTemplate converts an error of a template call to a *TemplateError, except the errors of a
// missing native library and of a use after Close.
func asTemplate(err error) error {
	e, ok := err.(*Error)
	if !ok || e.Kind == KindNoCgo {
		return err
	}
	return &TemplateError{e.Kind, 0, e.Msg}
}

func oneLine(s string) string {
	return clip(strings.Join(strings.Fields(s), " "), maxMsg)
}

// clip truncates text that may come from an untrusted file.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}

func errClosed(what string) error { return &Error{KindClosed, what + " is closed"} }
