package openai

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
)

// jsonNames returns the JSON names of a struct's fields, embedded structs included.
func jsonNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			names = append(names, jsonNames(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func orNil(e *chat.Error) error {
	if e == nil {
		return nil
	}
	return e
}

func noTask(*fields) string { return "" }

// TestShapesAreWhatIsRead checks that the documented fields of each body are those that
// its decoder reads.
func TestShapesAreWhatIsRead(t *testing.T) {
	hello := `{"messages":[{"role":"user","content":"x"}]}`
	look := `{"messages":[{"role":"user","content":[{"image_url":"data:image/png;base64,x"}]}]}`
	for name, c := range map[string]struct {
		body  any
		valid string
		read  func(*fields) error
	}{
		"chat":          {chatBody{}, look, func(f *fields) error { _, bad := decodeChat(f); return orNil(bad) }},
		"completion":    {completionBody{}, `{"prompt":"x"}`, func(f *fields) error { _, err := readCompletion(f); return err }},
		"responses":     {responsesBody{}, `{"input":"x"}`, func(f *fields) error { _, err := readResponses(f); return err }},
		"generate":      {generateBody{}, `{"token_ids":[1],"sampling_params":{}}`, func(f *fields) error { _, err := readGenerate(f); return err }},
		"tokenize":      {tokenizeBody{}, `{"prompt":"x"}`, func(f *fields) error { _, err := readTokenize(f); return err }},
		"tokenize chat": {tokenizeChatBody{}, look, func(f *fields) error { _, err := readTokenize(f); return err }},
		"detokenize":    {detokenizeBody{}, `{"tokens":[1]}`, func(f *fields) error { _, err := readDetokenize(f); return err }},
		"load adapter":  {loadAdapterBody{}, `{"lora_name":"a","lora_path":"/a"}`, func(f *fields) error { _, err := readLoadAdapter(f); return err }},
		"unload":        {unloadAdapterBody{}, `{"lora_name":"a"}`, func(f *fields) error { _, err := readUnloadAdapter(f); return err }},
		"embed":         {poolBody{}, `{"input":"x"}`, func(f *fields) error { _, err := readPool(f, noTask); return err }},
		"embed chat":    {poolChatBody{}, hello, func(f *fields) error { _, err := readPool(f, noTask); return err }},
		"pooling":       {taskBody{}, `{"input":"x"}`, func(f *fields) error { _, err := readPool(f, poolTask); return err }},
		"score":         {scoreBody{}, `{"queries":"x","items":"y"}`, func(f *fields) error { _, err := readScore(f); return err }},
		"rerank":        {rerankBody{}, `{"query":"x","documents":["y"]}`, func(f *fields) error { _, err := readRerank(f); return err }},
	} {
		f, bad := body([]byte(c.valid))
		if bad != nil {
			t.Fatal(name, bad)
		}
		if err := c.read(f); err != nil {
			t.Fatal(name, err)
		}
		names := jsonNames(reflect.TypeOf(c.body))
		for _, n := range names {
			if !f.seen[n] {
				t.Errorf("%s: `%s` is documented but not read", name, n)
			}
		}
		for n := range f.seen {
			refused := false
			for _, r := range unsupportedFields {
				refused = refused || r.name == n
			}
			if !refused && !slices.Contains(names, n) && !(slices.Contains([]string{"tokenize", "embed", "pooling"}, name) && n == "messages") {
				t.Errorf("%s: `%s` is read but not documented: add it to its body in shape.go", name, n)
			}
		}
	}
}

// TestShapesOfPartsAreWhatIsRead checks the same for messages, tools and their parts.
func TestShapesOfPartsAreWhatIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		body any
		at   string // %s is replaced by each field in turn
	}{
		"message":   {messageBody{}, `{"messages":[{"role":"user",%s}]}`},
		"tool call": {toolCallBody{}, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"},%s}]}]}`},
		"called":    {calledFunction{}, `{"messages":[{"role":"assistant","tool_calls":[{"function":{%s}}]}]}`},
		"part":      {textPartBody{}, `{"messages":[{"role":"user","content":[{%s}]}]}`},
		"function":  {nameBody{}, `{"messages":[{"role":"user"}],"tools":[{"function":{%s}}]}`},
		"stream":    {streamBody{}, `{"messages":[{"role":"user"}],"stream":true,"stream_options":{%s}}`},
	} {
		for _, field := range jsonNames(reflect.TypeOf(c.body)) {
			b := []byte(strings.Replace(c.at, "%s", `"`+field+`":[[1]]`, 1))
			if !json.Valid(b) {
				t.Fatalf("%s: %s", name, b)
			}
			_, err := DecodeChat(b)
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: a wrong `%s` gives %v", name, field, err)
			}
		}
	}
}

// TestShapesOfMediaAreWhatIsRead checks the same for parts with media, whose faults are kept for
// models that take them. detail has no effect.
func TestShapesOfMediaAreWhatIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		body any
		at   string // %s is replaced by each field in turn
	}{
		"image": {imagePartBody{}, `{"type":"image_url","image_url":"data:,",%s}`},
		"input": {imagePartBody{}, `{"type":"input_image","image_url":"data:,",%s}`},
		"video": {videoPartBody{}, `{"type":"video_url","video_url":"data:,",%s}`},
		"url":   {urlBody{}, `{"type":"image_url","image_url":{"url":"data:,",%s}}`},
	} {
		for _, field := range jsonNames(reflect.TypeOf(c.body)) {
			p := strings.Replace(c.at, "%s", `"`+field+`":[[1]]`, 1)
			r, err := DecodeChat([]byte(`{"messages":[{"role":"user","content":[` + p + `]}]}`))
			if err == nil && r.Ask.Chat.Messages[0].Parts[0].Media.Fault != nil {
				err = r.Ask.Chat.Messages[0].Parts[0].Media.Fault
			}
			if wrong := err != nil && strings.Contains(err.Error(), field); wrong == (field == "detail") {
				t.Errorf("%s: a wrong `%s` gives %v", name, field, err)
			}
		}
	}
}
