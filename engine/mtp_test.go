package engine_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// headAxes are ways to run a model with its own MTP head. Its proposals must not change any token,
// whatever their number and the size of prefill chunks.
var headAxes = []axis{
	{name: "plain, alone", alone: true},
	{name: "one", change: head(1), took: usedProposals},
	{name: "three", change: head(3), took: usedProposals},
	{name: "three, alone, chunks of 16", alone: true, took: usedProposals, change: func(y *toy) { head(3)(y); y.opts.MaxNumBatchedTokens = 16 }},
	{name: "five, prefixes, twice", rounds: 2, took: usedProposals, change: func(y *toy) { head(5)(y); y.opts.PrefixCaching = true }},
	{name: "two, preempted", took: preempted, change: func(y *toy) { head(2)(y); y.slabs, y.fat = least, true }},
	{name: "n-grams in place of it", change: ngrams(4), took: usedProposals},
}

// head makes the model's own head propose n tokens a step.
func head(n int) func(*toy) {
	return func(y *toy) { y.build.Draft, y.build.Verify, y.opts.Drafts = n, n, n }
}

// recordedHead returns the directory of a copy of the checkpoint with an MTP head, and the run that
// transformers recorded of it. The run is stored in the checkpoint file under extra tensor names;
// the copy renames them so that the loader ignores them.
func recordedHead(t *testing.T) (string, *enginetest.Golden) {
	t.Helper()
	const from = "models/testdata/tiny-qwen35-mtp"
	dir := t.TempDir()
	config, err := os.ReadFile(from + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/config.json", config, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(from + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(file)
	var head map[string]map[string]any
	if err := json.Unmarshal(file[8:8+n], &head); err != nil {
		t.Fatal(err)
	}
	run := map[string][]int32{}
	for _, name := range []string{"input.ids", "output.ids", "output.drafts", "output.draft_logits"} {
		at := head[name]["data_offsets"].([]any)
		for b := file[8+int(n):][int(at[0].(float64)):int(at[1].(float64))]; len(b) > 0; b = b[4:] {
			run[name] = append(run[name], int32(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		}
		head["model.visual."+name] = head[name]
		delete(head, name)
	}
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(dir+"/model.safetensors", append(out, file[8+n:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, &enginetest.Golden{InputIDs: run["input.ids"], DecodeIDs: run["output.ids"]}
}

// TestMTP runs the checkpoint with an MTP head in all ways of headAxes.
func TestMTP(t *testing.T) { ownHead(t, ref.Opener{}, backend.Settings{}) }

func ownHead(t *testing.T, on backend.Opener, s backend.Settings) {
	dir, g := recordedHead(t)
	twins(t, headAxes, toy{dir: dir, on: on, opts: engine.Options{MaxModelLen: 128, Backend: s}}, g)
}
