package chat_test

import (
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// The test checks that a render reports, and a response echoes, the sampling parameters that
// the sampler applies.
func TestSamplingInForce(t *testing.T) {
	s := chattest.Service(&chattest.Model{})
	for _, c := range []struct{ asked, temperature, topP, minP float64 }{
		{0, 0, 1, 0}, {0.004, 0.01, 0.5, 0.25}, {0.7, 0.7, 0.5, 0.25},
	} {
		topK := 7
		if c.asked == 0 {
			topK = 0
		}
		set := chattest.Settings()
		r, err := chat.NewRequest(chat.RequestParams{
			Prompts: text("p"), N: 1, Sampling: chat.Sampling{Temperature: &c.asked, TopP: ptr(0.5), MinP: ptr(0.25), TopK: ptr(7)},
		}, &set)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Prepare(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		run, err := s.Start(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		run.Close()
		for where, got := range map[string]chat.Sampling{"render": p[0].Sampling, "run": run.Sampling} {
			if *got.Temperature != c.temperature || *got.TopP != c.topP || *got.MinP != c.minP || *got.TopK != topK {
				t.Errorf("%s at %v: temperature %v, top_p %v, top_k %v, min_p %v", where, c.asked, *got.Temperature, *got.TopP, *got.TopK, *got.MinP)
			}
		}
	}
	// A value out of range is refused, even if another parameter turns it off.
	set := chattest.Settings()
	r, err := chat.NewRequest(chat.RequestParams{Prompts: text("p"), N: 1, Sampling: chat.Sampling{Temperature: ptr(0.0), TopP: ptr(0.0)}}, &set)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare(t.Context(), r); chat.AsError(err).Param != "top_p" {
		t.Errorf("top_p of 0: %v", err)
	}
}

// The test checks that stop strings are ignored until min_tokens tokens are generated.
func TestStopAfterMinTokens(t *testing.T) {
	for least, want := range []string{"a", "a", "abca", "abca", "abca", "abcabc"} {
		m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "abcabc"} }}
		run, err := start(t, chattest.Service(m), chat.RequestParams{Prompts: text("p"), Stop: []string{"b"}, MinTokens: least}, chattest.Settings())
		if err != nil {
			t.Fatal(err)
		}
		d := collect(t, run)[0]
		if d.Text != want || (d.Stop == "b") != (want != "abcabc") {
			t.Errorf("min_tokens %d: %q, stopped by %v; want %q", least, d.Text, d.Stop, want)
		}
	}
}
