package models_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/enginetest"
)

// smolLM2 is the real model; `make model` fetches it.
const smolLM2 = "../../models/SmolLM2-135M-Instruct.Q4_1.gguf"

// goldens lists the recorded runs: golden file → prompt tokens, steps.
var goldens = map[string][2]int{
	"smollm2-chat":     {266, 32},
	"smollm2-prose":    {307, 32},
	"smollm2-code":     {635, 32},
	"tiny-llama3-tied": {128, 40},
	"tiny-mha-f16":     {96, 40},
	"tiny-mha-q8_0":    {96, 40},
	"tiny-mha-q4_1":    {96, 40},
	"tiny-bias":        {100, 40},
	"tiny-llama3-long": {300, 40},
	"tiny-qwen2":       {100, 40},
	"tiny-qwen3":       {100, 40},
	"tiny-gpt-oss":     {150, 40},
	"tiny-gemma4":      {150, 40},
	"tiny-gemma4-moe":  {150, 40},
	"tiny-qwen35":      {150, 40},
	"tiny-qwen35-fp8":  {140, 40},
	"tiny-w8a16":       {100, 40},
	"tiny-w8a8":        {100, 40},
	"tiny-w4a16":       {100, 40},
	"tiny-awq":         {100, 40},
	"tiny-gptq":        {100, 40},
	"tiny-nvfp4":       {72, 16},

	"tiny-mistral":    {72, 16},
	"tiny-ministral3": {72, 16},
	"tiny-gemma":      {72, 16},
	"tiny-gemma2":     {72, 16},
	"tiny-gemma3":     {72, 16},
	"tiny-phi3":       {72, 16},
	"tiny-granite":    {72, 16},
	"tiny-smollm3":    {72, 16},
	"tiny-glm4":       {72, 16},
	"tiny-glm4-awq":   {72, 16},
	"tiny-granite4":   {72, 16},
	"tiny-cohere":     {72, 16},
	"tiny-cohere2":    {72, 16},
	"tiny-ernie":      {72, 16},
	"tiny-internlm3":  {72, 16},
	"tiny-olmo2":      {72, 16},
	"tiny-olmo3":      {72, 16},
	"tiny-hunyuan":    {72, 16},

	"tiny-qwen35-fp8-x8": {140, 40},

	"tiny-gemma4-e": {72, 16},

	"tiny-mixtral":     {64, 40},
	"tiny-qwen2-moe":   {64, 40},
	"tiny-qwen3-moe":   {64, 40},
	"tiny-nvfp4-moe":   {64, 16},
	"tiny-w8a8-moe":    {64, 16},
	"tiny-glm4-moe":    {64, 40},
	"tiny-granite-moe": {64, 40},
	"tiny-ernie-moe":   {64, 40},
	"tiny-olmoe":       {64, 40},

	"tiny-llama4":      {72, 40},
	"tiny-deepseek-v2": {64, 16},
	"tiny-deepseek-v3": {64, 16},

	"tiny-qwen35-moe": {64, 40},
	"tiny-qwen3-next": {64, 16},
	"tiny-granite4-h": {64, 16},

	"tiny-qwen2-gguf":   {100, 40},
	"tiny-qwen3-gguf":   {100, 40},
	"tiny-gpt-oss-gguf": {150, 40},
}

// x8 is the suffix of golden files that use another file's checkpoint with fp8 activations.
const x8 = "-x8"

func readGolden(t testing.TB, name string) *enginetest.Golden {
	t.Helper()
	g, err := enginetest.ReadGolden(filepath.Join("testdata/golden", name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// sampledOnly are the texts of a large vocabulary that keep sampled columns of all rows.
var sampledOnly = []string{"smollm2-chat", "smollm2-prose", "smollm2-code"}

// TestGoldenFiles checks that every golden file is complete, consistent, and recorded from the
// present checkpoint.
func TestGoldenFiles(t *testing.T) {
	found, err := filepath.Glob("testdata/golden/*.safetensors")
	if err != nil || len(found) != len(goldens) {
		t.Errorf("%d golden files (%v), %d are listed here", len(found), err, len(goldens))
	}
	for name, want := range goldens {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			if got := [2]int{len(g.InputIDs), len(g.DecodeIDs)}; got != want {
				t.Errorf("prompt, steps are %v, want %v", got, want)
			}
			if g.Facts.Architecture == "" || g.Facts.Compute != "float32" {
				t.Errorf("facts: %+v", g.Facts)
			}
			if full := checkRows(t, g); full < 1 && !slices.Contains(sampledOnly, name) {
				t.Error("all logits are kept of no row")
			}
			for file, sum := range g.Facts.Checkpoint {
				checkFile(t, name, file, sum)
			}
		})
	}
}

// checkRows checks data that a file contains twice: the steps follow the largest logits, and the
// kept logits agree with the top two and with the full rows. It returns the number of full rows.
func checkRows(t *testing.T, g *enginetest.Golden) (full int) {
	for i := range g.Rows() {
		row := g.Row(i)
		if next := i + 1 - len(g.InputIDs); next >= 0 && next < len(g.DecodeIDs) && g.DecodeIDs[next] != row.TopIDs[0] {
			t.Errorf("step %d feeds %d, the row before it chose %d", next, g.DecodeIDs[next], row.TopIDs[0])
		}
		for j, id := range g.SampleIDs {
			x := row.Sample[j]
			if x > row.Top[1] && id != row.TopIDs[0] {
				t.Fatalf("row %d: logit %g of token %d is above the second largest, %g", i, x, id, row.Top[1])
			}
			if row.Full != nil && row.Full[id] != x {
				t.Fatalf("row %d: logit of token %d is both %g and %g", i, id, x, row.Full[id])
			}
		}
		if row.Full == nil && len(g.SampleIDs) < g.Facts.VocabSize {
			continue
		}
		full++
		logits := row.Full
		if logits == nil {
			logits = row.Sample
		}
		for id, x := range logits {
			if x > row.Top[1] && int32(id) != row.TopIDs[0] {
				t.Fatalf("row %d: logit %g of token %d is above the second largest, %g", i, x, id, row.Top[1])
			}
		}
		if d, err := g.Compare(i, logits); err != nil || d.Max != 0 || d.Flipped && d.Gap > 0 {
			t.Errorf("row %d compared with itself: %+v, %v", i, d, err)
		}
	}
	return full
}

// checkFile compares a weight file with the hash it had when the logits were recorded.
func checkFile(t *testing.T, name, file, want string) {
	path := filepath.Join("testdata", strings.TrimSuffix(name, x8), file)
	if strings.HasPrefix(name, "smollm2-") {
		path = smolLM2
	}
	f, err := os.Open(path)
	if path == smolLM2 && errors.Is(err, fs.ErrNotExist) {
		t.Logf("hash of %s not compared: the file is absent, run make model", file)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("%s has changed since the logits were recorded (SHA-256 %s, then %s)", path, got, want)
	}
}
