package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

var maskReplies = flag.Int("masks", 0, "replies of TestMaskTime at each number of streams, with the default model; 0: it is skipped")

// maskCase is a request with a structure, one of those in tests/clients.
type maskCase struct {
	Name string
	Say  string
	Ask  map[string]json.RawMessage
}

func (c *maskCase) body(i int) []byte {
	b, _ := json.Marshal(map[string]any{ // no error: the values come from JSON
		"max_tokens": 900, "seed": i, "temperature": []float64{0.4, 1.2}[i%2],
		"messages": []any{map[string]string{"role": "user", "content": c.Say}},
	})
	for k, v := range c.Ask {
		if k != "max_tokens" {
			b = fmt.Appendf(b[:len(b)-1], ",%q:%s}", k, v)
		}
	}
	return b
}

// costs are the times of steps and masks.
type costs struct {
	mu      sync.Mutex
	masks   []time.Duration
	grammar time.Duration // of the engine's loop
	steps   time.Duration
	tokens  int
}

func (c *costs) add(s engine.StepStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.masks = append(c.masks, s.MaskTimes...)
	c.grammar += s.GrammarTime
	c.steps += s.Duration
	c.tokens += s.GenerationTokens
}

func (c *costs) take() *costs {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &costs{masks: c.masks, grammar: c.grammar, steps: c.steps, tokens: c.tokens}
	c.masks, c.grammar, c.steps, c.tokens = nil, 0, 0, 0
	return out
}

func (c *costs) quantile(q float64) time.Duration {
	if len(c.masks) == 0 {
		return 0
	}
	slices.Sort(c.masks)
	return c.masks[int(q*float64(len(c.masks)-1))]
}

// TestMaskTime measures masks in this process, with one reply at a time and with 16. It
// logs the lines of docs/guide/structured-outputs.md, and has no limits, since machines differ.
func TestMaskTime(t *testing.T) {
	if *maskReplies == 0 {
		t.Skip("-masks says of how many replies; make soak does")
	}
	var c costs
	m := offline(t, c.add)
	var cases []maskCase
	b, err := os.ReadFile("../tests/clients/testdata/structured.json")
	if err := errors.Join(err, json.Unmarshal(b, &cases)); err != nil {
		t.Fatal(err)
	}
	answerAll(t, m, cases, 16, len(cases)) // compiles each structure
	c.take()
	for _, streams := range []int{1, 16} {
		answerAll(t, m, cases, streams, *maskReplies)
		got := c.take()
		if len(got.masks) == 0 || got.grammar == 0 {
			t.Fatal("no masks")
		}
		t.Logf("%2d streams: %d tokens, %d masks: p50 %.3f ms, p99 %.3f ms; the loop's own %.3f ms a token, %.2f %% of %.2f ms a step-token", streams, got.tokens, len(got.masks),
			got.quantile(0.5).Seconds()*1e3, got.quantile(0.99).Seconds()*1e3, got.grammar.Seconds()*1e3/float64(got.tokens),
			100*got.grammar.Seconds()/got.steps.Seconds(), got.steps.Seconds()*1e3/float64(got.tokens))
	}
}

// offline loads the default model in this process.
func offline(t *testing.T, step func(engine.StepStats)) *Offline {
	t.Helper()
	model, err := filepath.Abs("../models/SmolLM2-135M-Instruct.Q4_1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	profile := filepath.Join(t.TempDir(), "p.cue")
	text := fmt.Sprintf("package p\nimport \"vapp.dev/schema\"\nschema.#Profile & {name: \"p\", model: source: %q, maxModelLen: \"4K\", memory: kvCache: \"512MiB\", scheduler: maxNumSeqs: 16}\n", model)
	if err := os.WriteFile(profile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(profile, Machine{Backends: []backend.Opener{cpu.Opener{}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenOffline(context.Background(), p, OfflineConfig{Step: step})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

func answerAll(t *testing.T, m *Offline, cases []maskCase, streams, replies int) {
	t.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	for range streams {
		wg.Go(func() {
			for i := range next {
				c := cases[(7*i+11)%len(cases)]
				if err := answer(m, c.body(i)); err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
		})
	}
	for i := range replies {
		next <- i
	}
	close(next)
	wg.Wait()
}

func answer(m *Offline, body []byte) error {
	ctx := context.Background()
	r, err := openai.DecodeChat(body)
	if err != nil {
		return err
	}
	q, err := chat.NewRequest(r.Ask, &m.Settings)
	if err != nil {
		return err
	}
	run, err := m.Start(ctx, q)
	if err != nil {
		return err
	}
	defer run.Close()
	_, err = run.Wait(ctx)
	return err
}
