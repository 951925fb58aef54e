package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind tells the errors of this package apart.
type Kind int

const (
	// KindArgument is a call that makes no sense: text that is not UTF-8, an
	// id below zero, a mask that is too short.
	KindArgument Kind = iota + 1
	// KindTokenizer is a tokenizer.json that cannot be used, or a text that it
	// cannot encode or decode.
	KindTokenizer
	// KindTemplate is a template's syntax or a failure while it renders.
	KindTemplate
	// KindRaised is raise_exception() in a template: its message is meant for
	// the one who sent the conversation.
	KindRaised
	// KindSteps is a render that used up its steps.
	KindSteps
	// KindOutput is a render whose text outgrew its limit.
	KindOutput
	// KindVars is a context for a template that is not a JSON object.
	KindVars
	// KindGrammar is a grammar that cannot be compiled, or a token that it
	// does not allow.
	KindGrammar
	// KindPanic is a fault in the native library; the process is unharmed.
	KindPanic
	// KindMemory is a render that ran into its limit of memory, or of lists and
	// dicts.
	KindMemory
	// KindTime is a render that ran into its limit of time.
	KindTime
	// KindSandbox is a sandbox process that could not be started or that broke.
	KindSandbox
	// KindClosed is a use after Close.
	KindClosed
	// KindNoCgo is a binary that was built without cgo.
	KindNoCgo
	// KindLength is a long text with a stretch in which this tokenizer has no
	// place to divide it.
	KindLength
	// KindBusy is work that other work left no place for.
	KindBusy
	// KindUnavailable is a process or thread that the system does not let run now: it is
	// short of files, threads or memory, or killed the process.
	KindUnavailable
	// KindUnsupported is what this operating system cannot do.
	KindUnsupported
)

var kindNames = [...]string{"", "argument", "tokenizer", "chat template", "chat template", "chat template", "chat template",
	"chat template", "grammar", "text library", "chat template", "chat template", "template sandbox", "text library", "text library",
	"tokenizer", "child process", "child process", "template sandbox"}

// String names the part that failed.
func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Error is what tokenizers and grammars refuse, in one line.
type Error struct {
	Kind Kind
	Msg  string
}

func (e *Error) Error() string { return e.Kind.String() + ": " + e.Msg }

// TemplateError is what a chat template or its render refuses, in one line.
// Msg never quotes the conversation, except where the template itself raised it.
type TemplateError struct {
	Kind Kind
	Line int // of the template, from 1; 0 where none is to blame
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

// failure builds the error for a code of the native library.
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

// reason brings what is said of a long grammar to the front: the library quotes all of it
// first.
func reason(msg string) string {
	const mark = "error: "
	if at := strings.LastIndex(msg, mark); len(msg) > maxMsg && at >= 0 {
		return clip(msg, maxMsg/4) + " … " + msg[at+len(mark):]
	}
	return msg
}

// asTemplate makes an error of a template call a *TemplateError, whatever went
// wrong; a missing native library and a use after Close stay as they are.
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

// clip bounds text that may come from a hostile file.
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
