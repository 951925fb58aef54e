package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
	"vapp.dev/engine/tokenizer"
)

func newDialectRender() *cobra.Command {
	var file string
	var jsonl, tokens bool
	c := &cobra.Command{
		Use:   "render [PROFILE | --template FILE]",
		Short: "Print the prompt of a chat request",
		Long: `Render reads a chat request, the body of POST /v1/chat/completions, from standard
input and prints the prompt's text as the profile's server renders it, or as
a template alone does. The weights are not needed.

With --jsonl every line has the variables of a template:
{"template": "…", "messages": […], "tools": […], "add_generation_prompt": true,
"context": {…}, "chat_template_kwargs": {…}, "now": "2024-07-26T03:04:05"}, and is
answered by {"text": "…"} or {"error": "…"}; --template is the default of "template".`,
		Args: needArgs(0, 1, "at most one profile"),
		RunE: func(c *cobra.Command, args []string) error {
			source, err := templateFile(file)
			if err != nil {
				return err
			}
			wrong := func(text string) error { return &usageError{errors.New(text), c.CommandPath()} }
			switch {
			case jsonl && (len(args) > 0 || tokens):
				return wrong("--jsonl renders templates alone: give neither a profile nor --tokens")
			case jsonl:
				return eachLine(c, func(line []byte) (any, error) { return renderLine(line, source) })
			case (len(args) == 1) == (file != ""):
				return wrong("give either a profile or --template FILE")
			case file != "" && tokens:
				return wrong("--tokens needs a profile: a template has no vocabulary")
			}
			body, err := readAll(c.InOrStdin())
			if err != nil {
				return err
			}
			r, err := openai.DecodeChat(body)
			if err != nil {
				return err
			}
			if file != "" {
				return renderAlone(c, r.Ask.Chat, source)
			}
			return renderProfile(c, args[0], r.Ask.Chat, tokens)
		},
	}
	c.Flags().StringVar(&file, "template", "", "a chat template, in place of a profile's")
	c.Flags().BoolVar(&jsonl, "jsonl", false, "read one JSON object a line")
	c.Flags().BoolVar(&tokens, "tokens", false, "print the token ids in place of the text")
	return c
}

// templateFile returns the source of a template, "" for no file.
func templateFile(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	defer f.Close()
	b, err := readAll(f)
	return string(b), err
}

// loneTemplate implements chat.Template without a model.
type loneTemplate struct{ *tokenizer.Template }

func (t loneTemplate) Render(_ context.Context, vars []byte) (string, error) {
	return t.Template.Render(vars)
}

func renderAlone(c *cobra.Command, conversation *chat.Conversation, source string) error {
	t, err := tokenizer.NewTemplate(source, tokenizer.Limits{})
	if err != nil {
		return err
	}
	text, err := chat.RenderTemplate(c.Context(), conversation, loneTemplate{t})
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.OutOrStdout(), text)
	return err
}

func renderProfile(c *cobra.Command, profile string, conversation *chat.Conversation, tokens bool) error {
	p, err := appliance.Prepare(profile, localMachine())
	if err != nil {
		return err
	}
	defer p.Close()
	box, err := templateSandbox()
	if err != nil {
		return err
	}
	service, set, err := p.Renderer(box)
	if err != nil {
		return err
	}
	out, err := service.Render(c.Context(), conversation, &set)
	if err != nil {
		return err
	}
	if tokens {
		return writeLine(c.OutOrStdout(), out.Tokens)
	}
	_, err = fmt.Fprint(c.OutOrStdout(), out.Text)
	return err
}

// renderLine renders the template of one line, or source.
func renderLine(line []byte, source string) (any, error) {
	var vars map[string]json.RawMessage
	if err := json.Unmarshal(line, &vars); err != nil {
		return nil, lineError(err)
	}
	now, err := moment(vars["now"])
	if err != nil {
		return nil, err
	}
	if raw, is := vars["template"]; is && json.Unmarshal(raw, &source) != nil {
		return nil, errors.New(`field "template" must be a string`)
	}
	if source == "" {
		return nil, errors.New(`there is no template: give "template" or --template FILE`)
	}
	delete(vars, "template")
	delete(vars, "now")
	for _, name := range []string{"context", "chat_template_kwargs"} {
		var more map[string]json.RawMessage
		if raw, is := vars[name]; is && json.Unmarshal(raw, &more) != nil {
			return nil, fmt.Errorf("field %q must be an object", name)
		}
		delete(vars, name)
		for k, v := range more {
			vars[k] = v
		}
	}
	for name, absent := range map[string]string{"tools": "null", "documents": "null", "add_generation_prompt": "true"} {
		if _, is := vars[name]; !is {
			vars[name] = json.RawMessage(absent)
		}
	}
	t, err := tokenizer.NewTemplate(source, tokenizer.Limits{})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	text, err := t.RenderAt(now, vars)
	if err != nil {
		return nil, err
	}
	return map[string]string{"text": text}, nil
}

// moment parses a time: seconds since 1970, or a date with optional time and zone; absent is now.
func moment(raw json.RawMessage) (time.Time, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return time.Now(), nil
	}
	var seconds float64
	if json.Unmarshal(raw, &seconds) == nil {
		return time.Unix(int64(seconds), 0).UTC(), nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
			if t, err := time.Parse(layout, text); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, errors.New(`field "now" must be a time such as "2024-07-26T03:04:05"`)
}
