package appliance

import (
	"context"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine/tokenizer"
)

// text adapts a tokenizer to chat.Text.
type text struct{ *tokenizer.Tokenizer }

func (t text) Encoding(s string, addSpecial bool) chat.Encoding {
	return t.NewEncoding(s, tokenizer.EncodeOptions{AddSpecial: addSpecial})
}

func (t text) NewDecoder(skipSpecial bool) chat.Decoder { return t.NewStream(skipSpecial) }

// template adapts a compiled chat template to chat.Template.
type template struct{ *tokenizer.Template }

func (t template) Render(_ context.Context, vars []byte) (string, error) {
	return t.Template.Render(vars)
}

// sandboxed is a chat.Template that is rendered in a child process.
type sandboxed struct {
	box            tokenizer.Sandbox
	source, format string
}

func (s sandboxed) Render(ctx context.Context, vars []byte) (string, error) {
	return tokenizer.RenderSandboxed(ctx, s.box, s.source, vars)
}

func (s sandboxed) ContentFormat() string { return s.format }

// sandbox returns a function that compiles the templates of requests. One child process
// compiles a template, another one renders it.
func sandbox(box tokenizer.Sandbox) func(context.Context, string) (chat.Template, error) {
	return func(ctx context.Context, source string) (chat.Template, error) {
		format, err := tokenizer.ContentFormatSandboxed(ctx, box, source)
		if err != nil {
			return nil, err
		}
		return sandboxed{box, source, format}, nil
	}
}
