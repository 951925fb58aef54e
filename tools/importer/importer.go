// Package importer reads the command lines with which people start vLLM today
// and writes the profile that says the same. It takes words, shell text,
// Dockerfiles and YAML, knows every flag of vllm serve in one table, and lets
// the schema have the last word on what it wrote. It starts nothing and reads
// no file but what it is given.
//
// A command line goes one way:
//
//	text ── shell, Dockerfile, manifest ──▶ words ── launch ──▶ command (words of vllm serve, variables)
//	command ── flags (the table) ──▶ settings ──▶ draft (fields, notes) ── write ──▶ CUE ── schema.Parse
//
// A flag that has no counterpart becomes one comment that says why. Nothing is
// left out silently, and nothing is guessed: a value that only the shell knows
// is an error with its place.
package importer

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// What the reader takes before it gives up.
const (
	maxBytes = 1 << 20   // of a text, and of all words together
	maxWord  = 64 << 10  // of a word after variables are put in
	maxDepth = 4         // of a shell inside a shell
	maxNest  = 64        // of a manifest
	maxWords = 16 * 1024 // of a command
)

// Options are what the command line itself cannot say.
type Options struct {
	// Name of the profile; "": from the served name, else from the model's.
	Name string
	// Container of a manifest that has several which run vLLM.
	Container string
	// Stdin is read where the command says "--config -"; nil: that is refused.
	Stdin io.Reader
}

// Args imports a command line: its words as arguments, or one argument that is
// the whole line as one would type it. The result is a CUE file that
// schema.Parse takes. The error is an *Error.
func Args(args []string, o Options) ([]byte, error) {
	if len(args) == 1 && strings.ContainsAny(args[0], " \t\n") {
		text, err := readable("", []byte(args[0]))
		if err != nil {
			return nil, err
		}
		c, err := commandOfScript(text, source{single: !strings.Contains(strings.TrimSpace(text), "\n")})
		if err != nil {
			return nil, err
		}
		return o.write(c)
	}
	words := make([]word, len(args))
	size := 0
	for i, a := range args {
		if _, err := readable("", []byte(a)); err != nil {
			return nil, err
		}
		if size += len(a); size > maxBytes || i >= maxWords {
			return nil, failure(TooLarge, Place{}, "", "the command line has more than %d bytes or %d words", maxBytes, maxWords)
		}
		words[i] = word{text: a, at: Place{Arg: i + 1}}
	}
	c, err := commandOfWords(words, 0)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, notFound(Place{}, "these words start no vLLM server")
	}
	return o.write(c)
}

// Text imports what a file holds: shell text, a Dockerfile, a Kubernetes or
// Compose manifest, a list of arguments in YAML or JSON, or a vLLM config file.
// name stands in messages. The error is an *Error.
func Text(name string, data []byte, o Options) ([]byte, error) {
	text, err := readable(name, data)
	if err != nil {
		return nil, err
	}
	text = unfenced(text)
	at := source{name: name}
	var c *command
	switch formOf(text) {
	case formNone:
		return nil, notFound(Place{Name: name}, "there is nothing to read")
	case formDockerfile:
		c, err = commandOfDockerfile(text, at)
	case formYAML:
		c, err = commandOfManifest(text, at, o.Container)
	default:
		c, err = commandOfScript(text, at)
	}
	if err != nil {
		return nil, err
	}
	return o.write(c)
}

// write goes the second half of the way.
func (o Options) write(c *command) ([]byte, error) {
	d := &draft{lex: newLexicon(), fields: map[string]field{}, name: o.Name}
	d.carry(c, o.Stdin)
	d.finish()
	if len(d.problems) > 0 {
		return nil, d.failed()
	}
	text, err := d.render()
	if err != nil {
		return nil, failure(Invalid, Place{}, "", "cannot be written as CUE: %s", oneLine(err.Error()))
	}
	if d.vet(text); len(d.problems) > 0 {
		return nil, d.failed()
	}
	return text, nil
}

// readable checks bytes from outside, and makes line ends and blanks plain.
func readable(name string, data []byte) (string, error) {
	switch {
	case len(data) > maxBytes:
		return "", failure(TooLarge, Place{Name: name}, "", "more than %d bytes", maxBytes)
	case !utf8.Valid(data):
		return "", failure(Syntax, Place{Name: name}, "save it as UTF-8", "not UTF-8 text")
	case bytes.IndexByte(data, 0) >= 0:
		return "", failure(Syntax, Place{Name: name}, "", "holds a zero byte, so it is no text")
	}
	s := strings.TrimPrefix(string(data), "\ufeff")
	return strings.ReplaceAll(s, "\r\n", "\n"), nil
}

// unfenced blanks the fences of Markdown around pasted text. Lines stay where
// they are.
func unfenced(text string) string {
	if !strings.Contains(text, "```") {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// oneLine keeps foreign messages from breaking ours.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func notFound(at Place, format string, args ...any) *Error {
	return failure(NotFound, at,
		`want "vllm serve MODEL …", "python -m vllm.entrypoints.openai.api_server --model MODEL …" or "docker run … vllm/vllm-openai … --model MODEL …"`,
		"%s", fmt.Sprintf(format, args...))
}
