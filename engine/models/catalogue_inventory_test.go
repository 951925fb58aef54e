package models

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// inventory is the format of testdata/inventory: the contents of a published checkpoint, by
// patterns of names.
type inventory struct {
	Tensors  int            `json:"tensors_in_checkpoint"`
	Elements int64          `json:"elements"`
	Trained  int64          `json:"elements_without_scales"` // a byte with two 4-bit weights counts once
	Bytes    int64          `json:"bytes"`
	Rows     []inventoryRow `json:"tensors"`
}

// inventoryRow is [pattern, count, shape, dtype]. In a pattern {i} is a number and {a,b} one of the
// words; text after a space is a remark.
type inventoryRow struct {
	pattern string
	count   int
	shape   []int64
	dtype   string
}

func (r *inventoryRow) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&r.pattern, &r.count, &r.shape, &r.dtype})
}

var patternBraces = regexp.MustCompile(`\\\{[^}]*\\\}`)

// names returns the regular expression for whole names of the pattern.
func (r inventoryRow) names() *regexp.Regexp {
	name, _, _ := strings.Cut(r.pattern, " ")
	return regexp.MustCompile("^" + patternBraces.ReplaceAllStringFunc(regexp.QuoteMeta(name), func(s string) string {
		if s == `\{i\}` {
			return `\d+`
		}
		return "(?:" + strings.ReplaceAll(s[2:len(s)-2], ",", "|") + ")"
	}) + "$")
}

var publishedDtypes = map[string]kernels.Format{"BF16": kernels.BF16, "U8": kernels.U8, "F8_E4M3": kernels.F8E4M3}

// TestInventory checks that the tensors derived from a published config equal those of the
// published checkpoint: names, shapes, formats, sums.
func TestInventory(t *testing.T) {
	for _, name := range []string{
		"llama-3.2-1b", "deepseek-r1-distill-qwen-7b", "qwen2-7b-instruct", "gpt-oss-20b", "gemma-4-26b-a4b", "gemma-4-31b", "qwen3.5-27b-fp8",
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile("testdata/inventory/" + name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var want inventory
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			cfg, ok, err := CatalogueConfig(name)
			if err != nil || !ok {
				t.Fatalf("in the catalogue: %v, %v", ok, err)
			}
			tensors, err := Tensors(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range want.differences(tensors) {
				t.Error(problem)
			}
		})
	}
}

// differences lists the differences between the inventory and a list of tensors.
func (want inventory) differences(tensors []checkpoint.TensorInfo) (problems []string) {
	note := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var elements, bytes int64
	for _, t := range tensors {
		elements += t.Elements()
		bytes += t.Bytes
	}
	if len(tensors) != want.Tensors || elements != want.Elements || bytes != want.Bytes {
		note("%d tensors, %d elements, %d bytes; published are %d, %d, %d", len(tensors), elements, bytes, want.Tensors, want.Elements, want.Bytes)
	}
	claimed := make([]bool, len(tensors))
	for _, r := range want.Rows {
		n, names := 0, r.names()
		for i, t := range tensors {
			if !claimed[i] && names.MatchString(t.Name) && slices.Equal(t.Shape, r.shape) && t.Format == publishedDtypes[r.dtype] {
				claimed[i] = true
				n++
			}
		}
		if n != r.count {
			note("%s %v %s: %d tensors, published are %d", r.pattern, r.shape, r.dtype, n, r.count)
		}
	}
	for i, t := range tensors {
		if !claimed[i] && len(problems) < 40 {
			note("%s %v %v is not published", t.Name, t.Shape, t.Format)
		}
	}
	return problems
}

// TestInventoryCanFail changes a list in every way that TestInventory must detect.
func TestInventoryCanFail(t *testing.T) {
	w := func(name string, f kernels.Format, shape ...int64) checkpoint.TensorInfo {
		i := checkpoint.TensorInfo{Name: name, Shape: shape, Format: f}
		i.Bytes = f.Bytes(i.Elements())
		return i
	}
	want := inventory{Tensors: 3, Elements: 20, Bytes: 40, Rows: []inventoryRow{
		{"layers.{i}.{q,k}.weight (full)", 2, []int64{2, 4}, "BF16"}, {"norm", 1, []int64{4}, "BF16"},
	}}
	good := []checkpoint.TensorInfo{w("layers.0.q.weight", kernels.BF16, 2, 4), w("norm", kernels.BF16, 4), w("layers.10.k.weight", kernels.BF16, 2, 4)}
	if got := want.differences(good); got != nil {
		t.Errorf("the same: %q", got)
	}
	for what, list := range map[string][]checkpoint.TensorInfo{
		"fewer":  good[:2],
		"more":   append(slices.Clone(good), w("bias", kernels.BF16, 0)),
		"name":   {good[0], good[1], w("layers.10.v.weight", kernels.BF16, 2, 4)},
		"shape":  {good[0], good[1], w("layers.10.k.weight", kernels.BF16, 4, 2)},
		"format": {good[0], good[1], w("layers.10.k.weight", kernels.F16, 2, 4)},
	} {
		if want.differences(list) == nil {
			t.Errorf("%s: seen as the same", what)
		}
	}
}
