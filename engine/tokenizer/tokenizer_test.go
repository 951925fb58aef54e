package tokenizer

import (
	"errors"
	"testing"

	"vapp.dev/engine/checkpoint"
)

const smollm = "../../models/SmolLM2-135M-Instruct.Q4_1.gguf"

// smolLM2 opens the default model, or skips the test where it was not fetched.
func smolLM2(t testing.TB) (*Tokenizer, *checkpoint.Checkpoint) {
	t.Helper()
	c, err := checkpoint.OpenMetadata(smollm)
	if err != nil {
		t.Skipf("the default model is not here (make model fetches it): %v", err)
	}
	json, err := c.TokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Load(json, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tok.Close)
	return tok, c
}

func TestSmolLM2(t *testing.T) {
	tok, c := smolLM2(t)
	text := "a  5\x00 b<|im_end|>"
	ids, err := tok.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tok.Decode(ids, false); err != nil || got != text {
		t.Errorf("%v decodes to %q, %v", ids, got, err)
	}
	tmpl, err := NewTemplate(c.ChatTemplate(), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render(map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": "hi"}}, "add_generation_prompt": true,
	})
	want := "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	if err != nil || got != want {
		t.Errorf("rendered %q, %v", got, err)
	}
}

func TestClosed(t *testing.T) {
	tmpl, err := NewTemplate("x", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	tmpl.Close()
	tmpl.Close()
	_, err = tmpl.Render(map[string]any{})
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindClosed {
		t.Errorf("got %v", err)
	}
}
