package appliance

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPooling serves the recorded pooling checkpoints. It checks that every route and
// encoding returns the values that transformers computes for a text, and that the arenas
// have the planned sizes.
func TestPooling(t *testing.T) {
	for name, c := range map[string]struct {
		profile, path, body string // %s stands for the text
		values              func(map[string]any) any
	}{
		"qwen3-embed":    {`model: dtype: "float32"`, "/v1/embeddings", `{"input": %s}`, func(m map[string]any) any { return m["embedding"] }},
		"llama-mean":     {`model: dtype: "float32"`, "/pooling", `{"input": %s, "task": "embed"}`, func(m map[string]any) any { return m["data"] }},
		"qwen2-classify": {`model: dtype: "float32"`, "/classify", `{"input": %s}`, func(m map[string]any) any { return m["probs"] }},
		"qwen3-rerank": {`model: dtype: "float32", pooling: classifierFromToken: ["no", "yes"], parsers: chatTemplate: %q`, "/score", `{"text_1": "What is the capital of China?", "text_2": %s}`,
			func(m map[string]any) any { return []any{m["score"]} }},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join("../engine/models/testdata/pooling", name))
			if err != nil {
				t.Fatal(err)
			}
			var golden struct {
				Runs []struct {
					Text   string
					Values []float64
				}
			}
			b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			if err == nil {
				err = json.Unmarshal(b, &golden)
			}
			if err != nil || len(golden.Runs) == 0 {
				t.Fatal(err)
			}
			profile := c.profile
			if strings.Contains(profile, "%q") {
				profile = fmt.Sprintf(profile, filepath.Join(dir, "score.jinja"))
			}
			s := serve(t, dir, profile)
			for _, run := range golden.Runs {
				text := run.Text
				if _, document, pair := strings.Cut(text, "<d>"); pair { // as the template joins a pair
					text = strings.TrimSuffix(document, "?")
				}
				quoted, _ := json.Marshal(text)
				var reply struct{ Data []map[string]any }
				s.postPooling(t, c.path, fmt.Sprintf(c.body, quoted), &reply)
				got, ok := c.values(reply.Data[0]).([]any)
				if !ok || len(got) != len(run.Values) {
					t.Fatalf("%v, recorded %v", reply.Data, run.Values)
				}
				for i, want := range run.Values {
					if x := got[i].(float64); math.Abs(x-want) > 2e-5*max(1, math.Abs(want)) {
						t.Errorf("%.20q: number %d is %g, recorded %g", text, i, x, want)
						break
					}
				}
			}
			if log := s.log.String(); strings.Contains(log, "level=ERROR") || !strings.Contains(log, "ledger: planned bytes = actual bytes") {
				t.Errorf("the plan and what was taken differ:\n%s", log)
			}
		})
	}
}

// TestPooledITLTarget checks that a pooling model, which generates no tokens, refuses
// scheduler.itlTarget at start and on reload.
func TestPooledITLTarget(t *testing.T) {
	dir, err := filepath.Abs("../engine/models/testdata/pooling/llama-mean")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, `model: dtype: "float32"`)
	s.edit(t, "rename", `model: dtype: "float32", scheduler: itlTarget: "50ms"`)
	const want = "scheduler.itlTarget: the model pools, and draws no tokens; leave the field out"
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, want) {
		t.Errorf("%+v", r)
	}
	if _, err := Prepare(s.profile, s.cfg.Machine); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it is planned: %v", err)
	}
}

// postPooling posts JSON and returns the reply, whose status must be 200.
func (s *server) postPooling(t *testing.T, path, body string, reply any) {
	t.Helper()
	r, err := visitor.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(b, reply)
	}
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", path, r.StatusCode, b, err)
	}
}
