package appliance

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
)

// writeAdapter writes an adapter of random numbers for the projections of a checkpoint.
func writeAdapter(t *testing.T, dir, base string, rank int, seed uint64) {
	t.Helper()
	c, err := checkpoint.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(seed, 7))
	head, data := map[string]any{}, []byte(nil)
	add := func(name string, rows, cols int) {
		from := len(data)
		for range rows * cols {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(r.NormFloat64()/2)))
		}
		head["base_model.model."+name+".weight"] = map[string]any{"dtype": "F32", "shape": []int{rows, cols}, "data_offsets": []int{from, len(data)}}
	}
	for _, w := range c.Tensors() {
		if module, ok := strings.CutSuffix(w.Name, "_proj.weight"); ok {
			add(module+"_proj.lora_A", rank, int(w.Shape[1]))
			add(module+"_proj.lora_B", int(w.Shape[0]), rank)
		}
	}
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, adapterConfig), fmt.Sprintf(`{"peft_type": "LORA", "r": %d, "lora_alpha": %d}`, rank, rank))
	writeFile(t, filepath.Join(dir, "adapter_model.safetensors"), string(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))+string(text)+string(data))
}

// post sends JSON and returns the status and the body of the reply.
func (s *server) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// tokens returns the greedy tokens of a model name, nil for 404.
func (s *server) tokens(t *testing.T, model string) []int {
	t.Helper()
	status, body := s.post(t, "/v1/completions", `{"model":"`+model+`","prompt":"the same prompt for all","max_tokens":12,"temperature":0,"ignore_eos":true,"return_token_ids":true}`)
	var reply struct {
		Model   string
		Choices []struct {
			TokenIDs []int `json:"token_ids"`
		}
	}
	if status == http.StatusNotFound && strings.Contains(body, "The model `"+model+"` does not exist.") {
		return nil
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || status != http.StatusOK || reply.Model != model || len(reply.Choices[0].TokenIDs) != 12 {
		t.Fatalf("%s: %d %s, %v", model, status, body, err)
	}
	return reply.Choices[0].TokenIDs
}

// TestAdapters checks the life of adapters in a server: loaded at start, by routes and by changes of
// the profile; each answers with its own tokens, alone and together with others.
func TestAdapters(t *testing.T) {
	dir := t.TempDir()
	toy := filepath.Join(dir, "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one", "two", "big"} {
		writeAdapter(t, filepath.Join(dir, name), toy, []int{4, 8, 16}[i], uint64(i))
	}
	lora := func(slots int, adapters string) string {
		return fmt.Sprintf(`serve: servedModelName: ["toy"], lora: {maxLoras: %d, maxRank: 8, allowRuntimeUpdating: true, adapters: {%s}}`,
			slots, strings.ReplaceAll(adapters, "DIR", dir))
	}
	s := serve(t, toy, lora(2, `one: "DIR/one"`))
	base, one := s.tokens(t, "toy"), s.tokens(t, "one")
	if slices.Equal(base, one) {
		t.Fatal("the adapter changes no token")
	}
	if log := s.log.String(); !strings.Contains(log, "planned bytes = actual bytes") {
		t.Error("the slots are not the planned ones:", log)
	}

	status, body := s.post(t, "/v1/load_lora_adapter", `{"lora_name":"two","lora_path":"`+dir+`/two"}`)
	if status != http.StatusOK || body != "Success: LoRA adapter 'two' added successfully." {
		t.Fatal(status, body)
	}
	want := map[string][]int{"toy": base, "one": one, "two": s.tokens(t, "two")}
	if slices.Equal(want["two"], one) || slices.Equal(want["two"], base) {
		t.Error("two adapters have the same tokens")
	}
	var all sync.WaitGroup
	for range 3 {
		for name, tokens := range want {
			all.Go(func() {
				if got := s.tokens(t, name); !slices.Equal(got, tokens) {
					t.Errorf("%s together with others: %v, alone %v", name, got, tokens)
				}
			})
		}
	}
	all.Wait()
	for body, want := range map[string]string{
		`{"lora_name":"big","lora_path":"` + dir + `/big"}`:                 "maxRank|max_lora_rank|rank",
		`{"lora_name":"third","lora_path":"` + dir + `/one"}`:               "lora.maxLoras",
		`{"lora_name":"none","lora_path":"` + dir + `/none"}`:               "No adapter found for " + dir + "/none",
		`{"lora_name":"one","lora_path":"` + dir + `/one"}`:                 "has already been loaded",
		`{"lora_name":"toy","lora_path":"` + dir + `/one"}`:                 "name of the served model",
		`{"lora_name":"one","lora_path":"` + toy + `","load_inplace":true}`: adapterConfig,
	} {
		status, got := s.post(t, "/v1/load_lora_adapter", body)
		if (status != http.StatusBadRequest && status != http.StatusNotFound) || !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(got, w) }) {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	if _, got := s.get(t, "/metrics"); !strings.Contains(got, `vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} `) {
		t.Error("no series of LoRA")
	}
	if _, got := s.get(t, "/v1/models"); !strings.Contains(got, `"id":"one"`) || !strings.Contains(got, `"root":"two","parent":"toy"`) {
		t.Error(got)
	}

	// The adapter of another name in its place, while that of the client stays.
	s.edit(t, "rename", lora(2, `other: "DIR/one"`))
	if r := s.waitApplied(t, 1); !strings.Contains(fmt.Sprint(r.Changes), "lora.adapters") {
		t.Error(r)
	}
	if got := s.tokens(t, "other"); !slices.Equal(got, one) || s.tokens(t, "one") != nil || !slices.Equal(s.tokens(t, "two"), want["two"]) {
		t.Error("after the change:", got)
	}
	s.edit(t, "rename", lora(2, `bad: "DIR/big"`))
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, "lora.adapters.bad: ") {
		t.Error(r)
	}
	if got := s.tokens(t, "other"); !slices.Equal(got, one) || s.tokens(t, "bad") != nil {
		t.Error("after a rejected change:", got)
	}
	s.edit(t, "rename", lora(3, `other: "DIR/one", third: "DIR/two"`))
	if r := s.latest(t, Reported); !strings.Contains(fmt.Sprint(r.Changes), "lora.maxLoras: 2 → 3 (structural)") || s.tokens(t, "third") != nil {
		t.Error(r)
	}
	if status, body := s.post(t, "/v1/unload_lora_adapter", `{"lora_name":"two"}`); status != http.StatusOK || s.tokens(t, "two") != nil {
		t.Error(status, body)
	}
	if got := s.tokens(t, "toy"); !slices.Equal(got, base) {
		t.Errorf("the model itself: %v, at first %v", got, base)
	}
}
