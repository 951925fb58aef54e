package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine/tokenizer"
)

// seeing returns a vision of two images and one video a prompt, and settings with it.
func seeing() (*chattest.Vision, Settings) {
	v := &chattest.Vision{Most: map[string]int{"image": 2, "video": 1}}
	set := testSettings()
	set.Chat.Vision, set.Chat.Template = v, chattest.Template{Format: tokenizer.ContentOpenAI}
	return v, set
}

// user returns a chat whose only message has the parts.
func user(parts, more string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":[%s]}]%s}`, parts, more)
}

const cat = `{"type":"image_url","image_url":{"url":"data:image/png;base64,abc","detail":"low"}}`

// TestMediaPooling: images of messages reach the engine of a model that pools, with their items, and a prompt with one
// is not cut. A list of texts has none.
func TestMediaPooling(t *testing.T) {
	v, set := seeing()
	m := &chattest.Model{Pooling: chattest.Embeds()}
	s := testServer(m, set)
	if w := post(s, "/v1/embeddings", user(cat+`,{"type":"text","text":"b"}`, "")); w.Code != 200 || !strings.Contains(w.Body.String(), `"prompt_tokens":13`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	ids := m.Requests()[0].Prompt
	text, _ := m.Decode(ids, true)
	if items := v.Attached(); len(items) != 1 || len(items[0]) != 1 || len(items[0][0].Spans) != 1 || items[0][0].Spans[0].Len != 3 || ids[items[0][0].At+items[0][0].Spans[0].At] != '#' {
		t.Errorf("prompt %q with %+v", text, items)
	}
	if w := post(s, "/v1/embeddings", user(cat, `,"truncate_prompt_tokens":4`)); w.Code != 400 || !strings.Contains(w.Body.String(), "cannot cut a prompt with images") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(s, "/v1/embeddings", `{"input":["a"]}`); w.Code != 200 || len(v.Attached()) != 1 || len(v.Loaded()) != 1 {
		t.Errorf("%d %s: %d loads", w.Code, w.Body, len(v.Loaded()))
	}
}

// Every form of an image reaches the engine as tokens in its place, and the loader as a URL.
func TestMedia(t *testing.T) {
	for _, c := range []struct {
		path, body string
		prompt     string // as text
		urls       string // of the loads, sorted
	}{
		{chatPath, user(`{"type":"text","text":"a"},`+cat+`,{"type":"text","text":"b"}`, ""), "[user]a+(###)+b[assistant]", "data:image/png;base64,abc"},
		{chatPath, user(`{"image_url":"http://x/abcd"}`, ""), "[user](####)[assistant]", "http://x/abcd"},
		{chatPath, user(`{"type":"image_url","image_url":"file:///p/ab"}`, ""), "[user](##)[assistant]", "file:///p/ab"},
		{chatPath, user(`{"image_url":null,"uuid":"dog"}`, ""), "[user](###)[assistant]", "#dog"},
		{chatPath, user(`{"type":"image_url","image_url":{"url":"https://x/ab"},"uuid":7}`, ""), "[user](##)[assistant]", "https://x/ab#7"},
		{chatPath, user(cat+`,{"type":"image_url","image_url":{"url":"http://x/z"}}`, ""), "[user](###)+(#)[assistant]", "data:image/png;base64,abc http://x/z"},
		{chatPath, user(`{"type":"video_url","video_url":{"url":"data:video/jpeg;base64,F1,F2"}}`, ""), "[user](##)[assistant]", "data:video/jpeg;base64,F1,F2"},
		{chatPath, user(`{"type":"input_image","image_url":"http://x/abcd"}`, ""), "[user](####)[assistant]", "http://x/abcd"},
		{responsesPath, `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://x/ab"}]}]}`, "[user](##)[assistant]", "http://x/ab"},
		{responsesPath, `{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"t"},{"type":"input_image","image_url":"http://x/ab"}]}]}`,
			"[assistant][tool]t[user](##)[assistant]", "http://x/ab"},
		{messagesPath, `{"model":"test","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"abc"}}]}]}`,
			"[user](###)[assistant]", "data:image/gif;base64,abc"},
		{messagesPath, `{"model":"test","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x/ab"}},{"type":"text","text":"b"}]}]}`,
			"[user](##)+b[assistant]", "http://x/ab"},
		{messagesPath, `{"model":"test","max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"data":"ab"}},{"type":"text","text":"t"}]},{"type":"text","text":"b"}]}]}`,
			"[tool]t[user](##)[user]b[assistant]", "data:image/jpeg;base64,ab"},
	} {
		v, set := seeing()
		m := &chattest.Model{}
		w := post(testServer(m, set), strings.TrimPrefix(c.path, "POST "), c.body)
		if w.Code != 200 || len(m.Requests()) != 1 {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
			continue
		}
		ids := m.Requests()[0].Prompt
		if text, _ := m.Decode(ids, true); text != c.prompt {
			t.Errorf("%s: prompt %q, want %q", c.body, text, c.prompt)
		}
		var urls []string
		for _, r := range v.Loaded() {
			url := r.URL
			if r.UUID != "" {
				url += "#" + r.UUID
			}
			urls = append(urls, url)
		}
		slices.Sort(urls)
		if got := strings.Join(urls, " "); got != c.urls {
			t.Errorf("%s: loaded %q, want %q", c.body, got, c.urls)
		}
		if n := len(v.Attached()); n != 1 || len(v.Attached()[0]) != len(urls) {
			t.Fatalf("%s: attached %v", c.body, v.Attached())
		}
		for _, item := range v.Attached()[0] {
			if text, _ := m.Decode(ids[item.At:item.At+len(item.Tokens)], true); text != "("+strings.Repeat("#", item.Spans[0].Len)+")" {
				t.Errorf("%s: item at %q", c.body, text)
			}
		}
	}
}

// A model of text refuses media, whatever is in them.
func TestMediaOfTextModel(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions":        user(`{"type":"image_url"}`, ""),
		"/tokenize":                   user(`{"type":"image_url","image_url":7}`, ""),
		"/v1/chat/completions/render": user(`{"type":"video_url","video_url":{"url":"x"}}`, ""),
		"/v1/responses":               `{"input":[{"role":"user","content":[{"type":"input_image","file_id":"x"}]}]}`,
		"/v1/messages":                `{"model":"test","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image"}]}]}`,
		"/v1/messages/count_tokens":   `{"model":"test","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]}]}]}`,
	} {
		m := &chattest.Model{}
		w := post(testServer(m, testSettings()), path, body)
		if want := ": the served model is not a multimodal model and takes no "; w.Code != 400 || !strings.Contains(w.Body.String(), want) || len(m.Requests()) > 0 {
			t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
		}
	}
}

// A request that is refused for another reason loads nothing, and errors are vLLM's.
func TestMediaRefused(t *testing.T) {
	two := cat + "," + cat
	for _, c := range []struct {
		body        string
		param, text string
	}{
		{user(two+","+cat, ""), "image", "At most 2 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase this limit (multimodal.limits of the profile)."},
		{user(two+","+two+","+cat, ""), "image", "At most 2 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase this limit (multimodal.limits of the profile)."},
		{user(`{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}`, ""), "audio", "At most 0 audio(s) may be provided in one prompt."},
		{user(`{"type":"image_embeds","image_embeds":"x"}`, ""), "messages", `messages.0.content.0: the served model takes no part of type \"image_embeds\".`},
		{user(`{"image_url":"ftp://x/a"}`, ""), "messages", "messages.0.content.0: The URL must be either a HTTP, data or file URL."},
		{user(`{"image_url":"data:image/png,abc"}`, ""), "messages", "messages.0.content.0: Only base64 data URLs are supported for now."},
		{user(`{"type":"image_url","image_url":{}}`, ""), "messages.0.content.0.image_url.url", "Field required: `messages.0.content.0.image_url.url`."},
		{user(`{"type":"image_url"}`, ""), "messages.0.content.0.image_url", "Field required: `messages.0.content.0.image_url`."},
		{user(`{"type":"input_image","file_id":"f"}`, ""), "messages", "`messages.0.content.0.file_id` is not supported: this server keeps no files. Send image_url."},
		{user(cat+`,{"type":"text","text":"[TOOL_CALLS]"}`, ""), "messages", "The number of [TOOL_CALLS] placeholders in the prompt must be the number of its images: found 2 for 1. Leave [TOOL_CALLS] out of texts, and use a chat template that takes images."},
		{user(cat, `,"temperature":-1`), "temperature", "temperature must be"},
		{user(cat, `,"allowed_token_ids":[999]`), "allowed_token_ids", ""},
		{user(cat, `,"max_tokens":190`), "input_tokens", "your prompt contains"},
		{user(cat, `,"truncate_prompt_tokens":5`), "truncate_prompt_tokens", "cannot cut a prompt with images"},
		{user(cat, `,"mm_processor_kwargs":3`), "mm_processor_kwargs", "must be an object"},
		{user(cat, `,"model":"other"`), "model", "does not exist"},
	} {
		v, set := seeing()
		m := &chattest.Model{}
		w := post(testServer(m, set), "/v1/chat/completions", c.body)
		want := c.text
		if w.Code != 400 && w.Code != 404 && w.Code != 501 || !strings.Contains(w.Body.String(), want) || !strings.Contains(w.Body.String(), fmt.Sprintf(`"param":"%s`, c.param)) {
			t.Errorf("%s: %d %s, want %q of %q", c.body, w.Code, w.Body, want, c.param)
		}
		if len(v.Loaded()) > 0 || len(m.Requests()) > 0 {
			t.Errorf("%s: loaded %v", c.body, v.Loaded())
		}
	}
}

// The tokens of images count: against the context, in usage, and in /tokenize.
func TestMediaTokens(t *testing.T) {
	v, set := seeing()
	long := `{"image_url":"http://x/` + strings.Repeat("a", 180) + `"}`
	w := post(testServer(&chattest.Model{}, set), "/v1/chat/completions", user(long, `,"max_tokens":9`))
	if want := "your prompt contains 199 input tokens"; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s, want %q", w.Code, w.Body, want)
	}
	if w = post(testServer(&chattest.Model{}, set), "/v1/chat/completions", user(cat, "")); !strings.Contains(w.Body.String(), `"prompt_tokens":22`) {
		t.Errorf("usage of %s", w.Body)
	}
	if w = post(testServer(&chattest.Model{}, set), "/tokenize", user(cat, "")); !strings.Contains(w.Body.String(), `"count":22`) {
		t.Errorf("/tokenize: %s", w.Body)
	}
	if w = post(testServer(&chattest.Model{}, set), "/tokenize", user(`"`+strings.Repeat("a", 300)+`",`+cat, "")); w.Code != 400 || !strings.Contains(w.Body.String(), "tokens without its images, more than the model's maximum context length of 200") {
		t.Errorf("/tokenize: %s", w.Body)
	}
	if w = post(testServer(&chattest.Model{}, set), "/v1/messages/count_tokens", `{"model":"test","messages":[{"role":"user","content":[{"type":"image","source":{"data":"abc"}}]}]}`); !strings.Contains(w.Body.String(), `"input_tokens":22`) {
		t.Errorf("count_tokens: %s", w.Body)
	}
	w = post(testServer(&chattest.Model{}, set), "/v1/chat/completions/render", user(cat, `,"mm_processor_kwargs":{"max_soft_tokens":70}`))
	if want := `"features":{"mm_hashes":{"image":["ba7816bf`; !strings.Contains(w.Body.String(), want) || !strings.Contains(w.Body.String(), `"mm_placeholders":{"image":[{"offset":6,"length":5}]}`) {
		t.Errorf("render: %s", w.Body)
	}
	loaded := v.Loaded()
	if got := string(loaded[len(loaded)-1].ProcessorKwargs["max_soft_tokens"]); got != "70" {
		t.Errorf("mm_processor_kwargs: %q", got)
	}
}

// Each conversation of a batch with images has the batch's mm_processor_kwargs and media_io_kwargs, whichever
// is the first with an image.
func TestMediaKwargsOfBatch(t *testing.T) {
	const kwargs = `"mm_processor_kwargs":{"max_soft_tokens":70},"media_io_kwargs":{"image":{}}`
	text, dog := `[{"role":"user","content":"a"}]`, `[{"role":"user","content":[{"image_url":"http://x/dog"}]}]`
	for _, list := range []string{text + "," + dog + "," + text + "," + dog, dog + "," + text + "," + dog} {
		v, set := seeing()
		w := post(testServer(&chattest.Model{}, set), "/v1/chat/completions/batch", fmt.Sprintf(`{"messages":[%s],%s}`, list, kwargs))
		loaded := v.Loaded()
		if w.Code != 200 || len(loaded) != 2 {
			t.Fatalf("%s: %d %s, %d images", list, w.Code, w.Body, len(loaded))
		}
		for i, r := range loaded {
			if tokens, image := string(r.ProcessorKwargs["max_soft_tokens"]), string(r.MediaKwargs["image"]); tokens != "70" || image != "{}" {
				t.Errorf("%s: image %d has %q and %q", list, i, tokens, image)
			}
		}
	}
	_, set := seeing()
	w := post(testServer(&chattest.Model{}, set), "/v1/chat/completions/batch", fmt.Sprintf(`{"messages":[%s,%s],"mm_processor_kwargs":3}`, text, dog))
	if want := `"param":"mm_processor_kwargs"`; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}

// A template that takes strings has the placeholders before the texts.
func TestMediaInStrings(t *testing.T) {
	_, set := seeing()
	set.Chat.Template = chattest.Template{}
	for parts, want := range map[string]string{
		`{"type":"text","text":"a"},` + cat + `,{"type":"text","text":"b"}`: "[user](###)\na\nb[assistant]",
		`{"type":"text","text":"see [TOOL_CALLS]."},` + cat:                 "[user]see (###).[assistant]",
	} {
		m := &chattest.Model{}
		w := post(testServer(m, set), "/v1/chat/completions", user(parts, ""))
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", parts, w.Code, w.Body)
		}
		if text, _ := m.Decode(m.Requests()[0].Prompt, true); text != want {
			t.Errorf("%s: %q, want %q", parts, text, want)
		}
	}
	w := post(testServer(&chattest.Model{}, set), "/v1/chat/completions", user(cat+`,{"type":"text","text":"[TOOL_CALLS][TOOL_CALLS]"}`, ""))
	if want := "Found more '[TOOL_CALLS]' placeholders in input prompt than actual multimodal data items."; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	m := &chattest.Model{} // without images the placeholder is a token like others
	if w = post(testServer(m, set), "/v1/chat/completions", user(`{"type":"text","text":"[TOOL_CALLS]"}`, "")); w.Code != 200 || !slices.Contains(m.Requests()[0].Prompt, chattest.Calls) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Images load at the same time; the first error is the reply's and ends the other loads.
func TestMediaFails(t *testing.T) {
	v, set := seeing()
	begun := make(chan struct{})
	v.Before = func(ctx context.Context, r chat.MediaRequest) error {
		if strings.HasSuffix(r.URL, "bad") {
			<-begun
			return &chat.Error{Kind: chat.Invalid, Param: "messages", Message: "no image", Cause: errors.New("hidden")}
		}
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	m := &chattest.Model{}
	w := post(testServer(m, set), "/v1/chat/completions", user(`{"image_url":"http://x/slow"},{"image_url":"http://x/bad"}`, ""))
	if w.Code != 400 || !strings.Contains(w.Body.String(), `"message":"no image`) || len(m.Requests()) != 0 {
		t.Errorf("%d %s, %d requests", w.Code, w.Body, len(m.Requests()))
	}
}
