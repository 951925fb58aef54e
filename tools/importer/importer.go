// Package importer converts command lines that start vLLM, llama.cpp, SGLang or TGI, and Modelfiles
// of Ollama, to profiles with the same meaning. It reads words, shell text, Dockerfiles and YAML,
// takes every flag from the tables of package foreign, and checks the result by the schema. It must not run anything or read files other than its input.
//
// A command line is processed in two halves:
//
//	text ── shell, Dockerfile, manifest ──▶ words ── launch ──▶ command (words of the server, variables)
//	command ── flags (the table) ──▶ settings ──▶ draft (fields, notes) ── write ──▶ CUE ── schema.Parse
//
// A flag without counterpart becomes a comment with the reason. No flag is dropped silently and no
// value is guessed: a value that only a shell can expand is an error with its place.
//
// Start reading at Args and Text; the conversions of values are in table_*.go.
package importer

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Limits of the input.
const (
	maxBytes = 1 << 20   // of a text, and of all words together
	maxWord  = 64 << 10  // of a word after expansion
	maxDepth = 4         // of shells inside shells
	maxNest  = 64        // of a manifest
	maxWords = 16 * 1024 // of a command
)

// Options are settings that the command line does not have.
type Options struct {
	// Name is the profile's name; "": derived from the served model name, else from the model.
	Name string
	// Container selects a container of a manifest where several run vLLM.
	Container string
	// Stdin is read for "--config -"; nil: that is refused.
	Stdin io.Reader
}

// Args imports a command line: its words as arguments, or a single argument with the whole line.
// The result has a CUE file that schema.Parse accepts. Its error is an *Error.
func Args(args []string, o Options) (*Result, error) {
	if len(args) == 1 && strings.ContainsAny(args[0], " \t\n") {
		text, err := normalize("", []byte(args[0]))
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
		if _, err := normalize("", []byte(a)); err != nil {
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
		return nil, notFound(Place{}, "these words start no server")
	}
	return o.write(c)
}

// Text imports a file: shell text, a Dockerfile, a Kubernetes or Compose manifest, a list of
// arguments in YAML or JSON, or a vLLM config file. name is used in messages. Its error is an
// *Error.
func Text(name string, data []byte, o Options) (*Result, error) {
	text, err := normalize(name, data)
	if err != nil {
		return nil, err
	}
	text = stripFences(text)
	at := source{name: name}
	var c *command
	switch formOf(text) {
	case formNone:
		return nil, notFound(Place{Name: name}, "there is nothing to read")
	case formDockerfile:
		c, err = commandOfDockerfile(text, at)
	case formModelfile:
		c, err = commandOfModelfile(text, at)
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

// write converts a command to the text of a profile.
func (o Options) write(c *command) (*Result, error) {
	d := newDraft(c)
	d.name = o.Name
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
	return d.result(text), nil
}

// normalize checks the encoding of the input, and normalizes line ends and blanks.
func normalize(name string, data []byte) (string, error) {
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

// stripFences blanks the Markdown fences around pasted text and keeps the line numbers.
func stripFences(text string) string {
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

// oneLine joins the lines of a foreign message.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func notFound(at Place, format string, args ...any) *Error {
	return failure(NotFound, at,
		`want "vllm serve MODEL …", "llama-server -m FILE …", "python -m sglang.launch_server --model-path MODEL …", "text-generation-launcher --model-id MODEL …", "ollama run MODEL", "docker run … vllm/vllm-openai … --model MODEL …" or a Modelfile`,
		"%s", fmt.Sprintf(format, args...))
}
