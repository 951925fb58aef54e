package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance/chat/dialect"
)

func newDialect() *cobra.Command {
	c := &cobra.Command{
		Use:   "dialect",
		Short: "Try a profile's parsers and chat template on texts",
		Long: `Dialect shows, without a model, how raw model text becomes reasoning, content and
tool calls, and how messages become the text of a prompt. The names are those of
a profile's parsers.reasoning and parsers.toolCall.`,
	}
	c.AddCommand(newDialectParse(), newDialectRender(), newDialectList())
	onlyCommands(c)
	return c
}

func newDialectList() *cobra.Command {
	var asText bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the parsers, their models and an example of each",
		Args:  needArgs(0, 0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if asText {
				return asJSON(c.OutOrStdout(), map[string][]dialect.Entry{"reasoning": dialect.Reasonings(), "toolCall": dialect.Tools()})
			}
			var rows [][]string
			for _, part := range []struct {
				what string
				list []dialect.Entry
			}{{"reasoning", dialect.Reasonings()}, {"toolCall", dialect.Tools()}} {
				for _, e := range part.list {
					name := strings.Join(append([]string{e.Name}, e.Aliases...), ", ")
					rows = append(rows, []string{part.what, name, e.Models, strings.ReplaceAll(e.Example, "\n", `\n`)})
				}
			}
			table(c.OutOrStdout(), "llll", []string{"PARSER", "NAME", "MODELS", "EXAMPLE"}, rows)
			return nil
		},
	}
	c.Flags().BoolVar(&asText, "json", false, "print JSON")
	return c
}

func newDialectParse() *cobra.Command {
	var reasoning, tools, finish string
	var jsonl bool
	c := &cobra.Command{
		Use:   "parse [--reasoning NAME] [--tools NAME]",
		Short: "Parse raw model text and print the reply as JSON",
		Long: `Parse reads raw model text from standard input, markers included, and prints

  {"reasoning", "content", "tool_calls", "finish_reason", "deltas": […]}

deltas are the deltas of a streamed reply. With --jsonl every line is one reply:
{"output_text": "…"} or {"deltas": ["…", …]}, with the optional keys "tools",
"tool_choice", "parallel_tool_calls", "include_reasoning", "chat_template_kwargs",
"prompt", "finish_reason" (stop or length), "reasoning_parser", "tool_parser" and
"tokenizer_mode". An invalid line is answered by {"error": "…"}.`,
		Args: needArgs(0, 0, "no arguments: the text comes from standard input"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := dialect.Check(reasoning, tools); err != nil {
				return &usageError{err, c.CommandPath()}
			}
			if finish != "stop" && finish != "length" {
				return &usageError{fmt.Errorf("--finish-reason %s: give stop or length", finish), c.CommandPath()}
			}
			one := parseLine{Reasoning: reasoning, Tools: tools, Finish: finish}
			if jsonl {
				return eachLine(c, func(line []byte) (any, error) {
					l := one
					if err := json.Unmarshal(line, &l); err != nil {
						return nil, lineError(err)
					}
					return l.parse()
				})
			}
			text, err := readAll(c.InOrStdin())
			if err != nil {
				return err
			}
			one.Text = string(text)
			out, err := one.parse()
			if err != nil {
				return err
			}
			return writeLine(c.OutOrStdout(), out)
		},
	}
	c.Flags().StringVar(&reasoning, "reasoning", "", "reasoning parser")
	c.Flags().StringVar(&tools, "tools", "", "tool-call parser")
	c.Flags().StringVar(&finish, "finish-reason", "stop", "why the text ended: stop, or length for a text cut by max_tokens")
	c.Flags().BoolVar(&jsonl, "jsonl", false, "read one JSON object a line")
	return c
}

// parseLine is one reply to parse.
type parseLine struct {
	Text      string                     `json:"output_text"`
	Deltas    []string                   `json:"deltas"`
	Functions []json.RawMessage          `json:"tools"`
	Choice    json.RawMessage            `json:"tool_choice"`
	Parallel  *bool                      `json:"parallel_tool_calls"`
	Include   *bool                      `json:"include_reasoning"`
	Kwargs    map[string]json.RawMessage `json:"chat_template_kwargs"`
	Prompt    string                     `json:"prompt"`
	Finish    string                     `json:"finish_reason"`
	Reasoning string                     `json:"reasoning_parser"`
	Tools     string                     `json:"tool_parser"`
	Tokenizer string                     `json:"tokenizer_mode"`
}

// parsed is the parsed reply, in the format of the API.
type parsed struct {
	Reasoning *string       `json:"reasoning"`
	Content   *string       `json:"content"`
	Calls     []parsedCall  `json:"tool_calls"`
	Finish    string        `json:"finish_reason"`
	Deltas    []parsedDelta `json:"deltas"`
}

type parsedCall struct {
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Function parsedFunction `json:"function"`
}

type parsedFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type parsedDelta struct {
	Reasoning string            `json:"reasoning,omitempty"`
	Content   string            `json:"content,omitempty"`
	Calls     []parsedCallDelta `json:"tool_calls,omitempty"`
}

type parsedCallDelta struct {
	Index    int            `json:"index"`
	ID       string         `json:"id,omitempty"`
	Type     string         `json:"type,omitempty"`
	Function parsedFunction `json:"function"`
}

// options returns the options of the reply's parser.
func (l *parseLine) options() (dialect.Options, error) {
	o := dialect.Options{
		Reasoning: l.Reasoning, Tools: l.Tools, Prompt: l.Prompt, Functions: l.Functions, Kwargs: l.Kwargs,
		HideReasoning: l.Include != nil && !*l.Include, OneCall: l.Parallel != nil && !*l.Parallel,
	}
	if l.Tokenizer == "mistral" && o.Tools == "" {
		o.Tools = "mistral"
	}
	var named struct {
		Function struct{ Name string }
	}
	if len(l.Choice) == 0 || string(l.Choice) == "null" {
		return o, nil
	}
	if json.Unmarshal(l.Choice, &o.Choice) != nil {
		if json.Unmarshal(l.Choice, &named) != nil || named.Function.Name == "" {
			return o, errors.New("tool_choice must be none, auto, required or name a function")
		}
		o.Choice, o.Function = dialect.Named, named.Function.Name
		return o, nil
	}
	switch o.Choice {
	case dialect.Auto, dialect.None, dialect.Required:
		return o, nil
	}
	return o, fmt.Errorf("tool_choice %q: give none, auto, required or a function", o.Choice)
}

func (l *parseLine) parse() (*parsed, error) {
	o, err := l.options()
	if err != nil {
		return nil, err
	}
	if l.Finish == "" {
		l.Finish = "stop"
	}
	pieces := l.Deltas
	if pieces == nil {
		pieces = []string{l.Text}
	}
	p, err := dialect.New(o)
	if err != nil {
		return nil, err
	}
	var m dialect.Message
	out := parsed{Calls: []parsedCall{}, Deltas: []parsedDelta{}}
	for _, s := range pieces {
		out.add(&m, p.Feed(strings.ToValidUTF8(s, "\ufffd")))
	}
	last, finish := p.Finish(l.Finish)
	out.add(&m, last)
	out.Finish = finish
	if m.Reasoning != "" {
		out.Reasoning = &m.Reasoning
	}
	if m.Content != "" {
		out.Content = &m.Content
	}
	for _, c := range m.Calls {
		out.Calls = append(out.Calls, parsedCall{c.ID, "function", parsedFunction{c.Name, c.Arguments}})
	}
	return &out, nil
}

// add adds the deltas of one piece of text.
func (p *parsed) add(m *dialect.Message, said []dialect.Delta) {
	m.Add(said...)
	for _, d := range said {
		var out parsedDelta
		switch d.Kind {
		case dialect.Reasoning:
			out.Reasoning = d.Text
		case dialect.Content:
			out.Content = d.Text
		case dialect.ToolCall:
			c := parsedCallDelta{Index: d.Index, ID: d.ID, Function: parsedFunction{d.Name, d.Text}}
			if d.ID != "" {
				c.Type = "function"
			}
			out.Calls = []parsedCallDelta{c}
		}
		p.Deltas = append(p.Deltas, out)
	}
}

// maxDialectInput bounds a text, and a line of --jsonl, in bytes.
const maxDialectInput = 64 << 20

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxDialectInput+1))
	if err == nil && len(b) > maxDialectInput {
		err = fmt.Errorf("standard input is longer than %d bytes", maxDialectInput)
	}
	return b, err
}

// eachLine answers every line of standard input with a line. A line that cannot be answered gets an
// error as its answer, and makes the exit code 1.
func eachLine(c *cobra.Command, answer func(line []byte) (any, error)) error {
	s := bufio.NewScanner(c.InOrStdin())
	s.Buffer(nil, maxDialectInput)
	bad := false
	for s.Scan() {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		out, err := answer(line)
		if err != nil {
			bad, out = true, map[string]string{"error": err.Error()}
		}
		if err := writeLine(c.OutOrStdout(), out); err != nil {
			return err
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line is longer than %d bytes", maxDialectInput)
	case err != nil:
		return err
	case bad:
		return exitError(1)
	}
	return nil
}

// lineError describes an invalid line of JSON without naming Go types.
func lineError(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("field %q cannot be a %s", kind.Field, kind.Value)
	}
	return fmt.Errorf("not a JSON object: %w", err)
}

// writeLine writes one line of JSON without escaping HTML characters.
func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
