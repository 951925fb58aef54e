//go:build clients

package clients

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// sighted is a server with a small model that takes two images. Its replies are words without sense,
// which depend on the image.
var sighted *server

// sightedText is the profile of sighted.
const sightedText = `
	maxModelLen: 256, memory: kvCache: "8MiB", sampling: temperature: 0
	multimodal: {limits: image: 2, loadMemory: "64MiB", cache: "16MiB", image: tokens: 70}
`

// startSighted starts a server with a recorded checkpoint of Gemma 4 with its vision tower, which gets a
// tokenizer of single letters and a template that writes the parts of messages.
func startSighted(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join("../../engine/models/testdata/tiny-gemma4-tower", name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, b)
	}
	special := map[int]string{120: "<boi>", 121: "<eoi>", 122: "<|image|>"}
	vocab, added := map[string]int{}, []map[string]any{}
	for id := range 128 {
		word, is := special[id]
		if is {
			added = append(added, map[string]any{"id": id, "content": word, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		} else if word = string(rune(' ' + id)); id >= 95 {
			word = fmt.Sprintf("<unused%d>", id)
		}
		vocab[word] = id
	}
	tokenizer, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": added, "decoder": map[string]any{"type": "Fuse"},
		"pre_tokenizer": map[string]any{"type": "Split", "pattern": map[string]any{"Regex": "."}, "behavior": "Isolated", "invert": false},
		"model":         map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": " "},
	})
	if err != nil {
		t.Fatal(err)
	}
	write("tokenizer.json", tokenizer)
	write("chat_template.jinja", []byte(`{% for m in messages %}{% if m.content is string %}{{ m.content }}{% elif m.content %}{% for p in m.content %}`+
		`{% if p.type == "text" %}{{ p.text }}{% else %}<|image|>{% endif %}{% endfor %}{% endif %}{% endfor %}`))
	write("preprocessor_config.json", []byte(`{"image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 3, "max_soft_tokens": 70}`))
	s, err := startModel(dir, sightedText)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// picture returns a PNG of one colour, in base64.
func picture(c color.RGBA) string {
	m := image.NewRGBA(image.Rect(0, 0, 60, 40))
	for i := range m.Pix {
		m.Pix[i] = [4]uint8{c.R, c.G, c.B, c.A}[i%4]
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		panic(err) // a buffer takes all that is written
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

var red, blue = picture(color.RGBA{200, 10, 30, 255}), picture(color.RGBA{10, 30, 220, 255})

const (
	asPNG    = "data:image/png;base64,"
	look     = "what is this?"
	noImages = "the served model is not a multimodal model and takes no "
	tooMany  = "At most 2 image(s) may be provided in one prompt."
	broken   = "Failed to load image"
)

func openaiImages(t *testing.T) {
	parts := func(urls ...string) openai.ChatCompletionNewParams {
		p, content := ask(look), []openai.ChatCompletionContentPartUnionParam{}
		for _, u := range urls {
			content = append(content, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: u, Detail: "high"}))
		}
		p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(append(content, openai.TextContentPart(look)))}
		return p
	}
	c, ctx := clientOf(sighted.url, "none", 0), context.Background()
	seen := func(urls ...string) *openai.ChatCompletion {
		t.Helper()
		r, err := c.Chat.Completions.New(ctx, parts(urls...))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	none, one, other, both := seen(), seen(asPNG+red), seen(asPNG+blue), seen(asPNG+red, asPNG+blue)
	tokens := one.Usage.PromptTokens - none.Usage.PromptTokens
	if text := one.Choices[0].Message.Content; tokens < 10 || both.Usage.PromptTokens != none.Usage.PromptTokens+2*tokens || text == "" || text == other.Choices[0].Message.Content {
		t.Errorf("%+v and %q; two images %+v, another %q", one.Usage, text, both.Usage, other.Choices[0].Message.Content)
	}
	r, err := c.Responses.New(ctx, responses.ResponseNewParams{Model: modelName, MaxOutputTokens: openai.Int(8), Input: responses.ResponseNewParamsInputUnion{OfInputItemList: []responses.ResponseInputItemUnionParam{
		responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{
			{OfInputImage: &responses.ResponseInputImageParam{ImageURL: openai.String(asPNG + red), Detail: "auto"}}, responses.ResponseInputContentParamOfInputText(look),
		}, "user"),
	}}})
	if err != nil || r.Usage.InputTokens != one.Usage.PromptTokens || r.OutputText() == "" {
		t.Errorf("responses: %v, %+v", err, r)
	}
	for _, bad := range []struct {
		url  string
		urls []string
		want string
	}{{base, []string{asPNG + red}, noImages}, {sighted.url, []string{asPNG + red, asPNG + red, asPNG + blue}, tooMany}, {sighted.url, []string{asPNG + red[:40]}, broken}} {
		c := clientOf(bad.url, "none", 0)
		_, err := c.Chat.Completions.New(ctx, parts(bad.urls...))
		if e := refused[*openai.Error](t, err); e.StatusCode != http.StatusBadRequest || e.Type != "BadRequestError" || !strings.Contains(e.Message, bad.want) || strings.Contains(e.Message, "\n") {
			t.Errorf("%v; want %q", err, bad.want)
		}
	}
}

func messageImages(t *testing.T) {
	ctx := context.Background()
	with := func(blocks ...anthropic.ContentBlockParamUnion) anthropic.MessageNewParams {
		p := question("")
		p.Messages = []anthropic.MessageParam{anthropic.NewUserMessage(append(blocks, anthropic.NewTextBlock(look))...)}
		return p
	}
	shown := func(data string) anthropic.ContentBlockParamUnion {
		return anthropic.NewImageBlockBase64("image/png", data)
	}
	c := anthropicClient(sighted.url, "none", 0)
	seen := func(p anthropic.MessageNewParams) *anthropic.Message {
		t.Helper()
		m, err := c.Messages.New(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	none, one, other := seen(with()), seen(with(shown(red))), seen(with(shown(blue)))
	tokens := one.Usage.InputTokens - none.Usage.InputTokens
	if text := one.Content[0].Text; tokens < 10 || text == "" || text == other.Content[0].Text {
		t.Errorf("%+v and %q; without an image %+v, another %q", one.Usage, text, none.Usage, other.Content[0].Text)
	}
	agent := func(screenshot string) anthropic.MessageNewParams {
		p, result := with(), anthropic.ToolResultBlockParam{ToolUseID: "c"}
		if screenshot != "" {
			result.Content = []anthropic.ToolResultBlockParamContentUnion{{OfImage: shown(screenshot).OfImage}}
		}
		p.Messages = append(p.Messages, anthropic.NewAssistantMessage(anthropic.NewToolUseBlock("c", map[string]any{}, "screenshot")), anthropic.NewUserMessage(anthropic.ContentBlockParamUnion{OfToolResult: &result}))
		return p
	}
	if m, without := seen(agent(red)), seen(agent("")); m.Usage.InputTokens != without.Usage.InputTokens+tokens || m.Content[0].Text == "" {
		t.Errorf("a tool's result: %+v, without an image %+v; an image has %d tokens", m.Usage, without.Usage, tokens)
	}
	for _, bad := range []struct {
		url  string
		p    anthropic.MessageNewParams
		want string
	}{{base, with(shown(red)), noImages}, {base, agent(red), noImages}, {sighted.url, with(shown(red), shown(red), shown(blue)), tooMany}, {sighted.url, with(shown(red[:40])), broken}} {
		c := anthropicClient(bad.url, "none", 0)
		_, err := c.Messages.New(ctx, bad.p)
		if e := refused[*anthropic.Error](t, err); e.StatusCode != http.StatusBadRequest || e.Type() != anthropic.ErrorTypeInvalidRequestError || !strings.Contains(e.RawJSON(), bad.want) {
			t.Errorf("%v; want %q", err, bad.want)
		}
	}
}
