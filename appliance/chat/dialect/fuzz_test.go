package dialect

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fuzzed checks that a text gives the same message however it is split, without a panic,
// for every reasoning parser combined with each of the tool parsers.
func fuzzed(f *testing.F, tools ...string) {
	for _, e := range append(Tools(), Reasonings()...) {
		f.Add(e.Example, uint64(1))
		f.Add(e.Example[:len(e.Example)*2/3], uint64(2))
	}
	f.Add(strings.Join(Markers(), " a "), uint64(3))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		text = strings.ToValidUTF8(text, "?")
		if len(text) > 2000 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 1))
		for _, pair := range pairs() {
			if !slices.Contains(tools, pair[1]) {
				continue
			}
			o := Options{Reasoning: pair[0], Tools: pair[1], Choice: []string{Auto, None, Required, Named}[seed%4], Function: "f", OneCall: seed%3 == 0}
			for _, reason := range []string{"stop", "length"} {
				o.NewID = ids()
				want, finish, err := Parse(o, text, reason)
				if err != nil {
					t.Fatal(err)
				}
				o.NewID = ids()
				got, f := stream(t, o, runes(text, func() int { return 1 + r.IntN(9) }), false, reason)
				if !reflect.DeepEqual(got, want) || f != finish {
					t.Fatalf("%+v: %q:\n got %+v %s\nwant %+v %s", pair, text, got, f, want, finish)
				}
			}
			stream(t, o, tokenized(text, r), true, "stop")
		}
	})
}

func FuzzReasoning(f *testing.F)  { fuzzed(f, "") }
func FuzzHermes(f *testing.F)     { fuzzed(f, "hermes") }
func FuzzGemma4(f *testing.F)     { fuzzed(f, "gemma4") }
func FuzzQwen3Coder(f *testing.F) { fuzzed(f, "qwen3_coder", "seed_oss", "minimax_m2") }
func FuzzGLM45(f *testing.F)      { fuzzed(f, "glm45") }
func FuzzLlama3JSON(f *testing.F) { fuzzed(f, "llama3_json") }
func FuzzPythonic(f *testing.F)   { fuzzed(f, "pythonic") }
func FuzzOlmo3(f *testing.F)      { fuzzed(f, "olmo3") }
func FuzzMistral(f *testing.F)    { fuzzed(f, "mistral") }
func FuzzHarmony(f *testing.F)    { fuzzed(f, "openai") }
func FuzzBlocks(f *testing.F) {
	fuzzed(f, "granite", "granite-20b-fc", "phi4_mini_json", "hunyuan_a13b", "internlm", "longcat")
}
func FuzzHeaded(f *testing.F) { fuzzed(f, "deepseek_v3", "deepseek_v31", "kimi_k2") }
