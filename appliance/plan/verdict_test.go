package plan_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// lines returns a profile with these lines.
func lines(t testing.TB, text string) *schema.Profile {
	t.Helper()
	return profile(t, "profile.cue", "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"verdict\"\n\tmodel: source: \"x\"\n\t"+text+"\n}\n")
}

// TestVerdictRules has a plan for each rule of the verdict's note.
func TestVerdictRules(t *testing.T) {
	here := server
	here.Measured, here.FreeBytes = true, 60<<30
	busy, limited, small := here, here, server
	busy.FreeBytes = 100 << 20
	limited.Limits = []backend.ProcessLimit{{Name: backend.AddressSpace, Used: 1 << 30, Limit: 1 << 30}}
	small.TotalBytes = 1400 << 20
	seen := map[string]bool{}
	for _, c := range []struct {
		rule, note string
		plan       func(*testing.T) plan.Inputs
	}{
		{"plan-only", "plan-only: vapp up refuses it: backend cuda: Tesla V100", func(t *testing.T) plan.Inputs {
			return on(t, "meta-llama/Llama-3.2-1B", `maxModelLen: "8K"`, "v100")
		}},
		{"weights-absent", "cannot start yet: model meta-llama/Llama-3.2-1B: ", with(llama1B, here, `memory: kvCache: "8GiB"`)},
		{"memory-taken", "cannot start now: the plan takes ", with(toy, busy, `memory: kvCache: "16MiB"`)},
		{"process-limit", "cannot start here: this process is limited to 1.00 GiB of address space", with(toy, limited, `memory: kvCache: "16MiB"`)},
		{"contract-close", `require.concurrency.">=45" is met, but only just: 45 sequences of 1,024 tokens are required, the KV cache holds 1.01 times that`,
			with(smol, server, `memory: kvCache: "1GiB", require: concurrency: ">=45": "1K"`)},
		{"memory-close", "only 1.28 GiB of the device are left, and ", with(smol, server, `memory: utilization: 0.98`)},
		{"length-cut", "of the model's 8,192: the longest that fits", with(smol, small, `scheduler: maxNumSeqs: 4`)},
		{"one-at-a-time", "one request of 8,192 tokens takes 90 % of the KV cache; a second of that length waits until it ends", with(smol, server, `memory: kvCache: "200MiB"`)},
		{"lost", "41 % of the KV cache is lost to pages and slabs at 300 tokens", with(smol, server, `maxModelLen: 300, memory: {kvCache: "1GiB", blockSize: 256}`)},
		{"carries-more", `memory.kvCache: "46GiB" (now "1GiB") would carry 256 sequences of 8,192 tokens`, with(smol, server, `memory: kvCache: "1GiB"`)},
		{"max-num-seqs", "scheduler.maxNumSeqs is the limit of short requests: 8 run, the KV cache holds ", with(smol, server, `scheduler: maxNumSeqs: 8`)},
		{"other-device", "not measured: vapp up plans again for the device that it finds", func(t *testing.T) plan.Inputs {
			return on(t, "meta-llama/Llama-3.2-1B", `maxModelLen: "64K", memory: kvCacheDtype: "bfloat16"`, "l4")
		}},
		{"nothing", "nothing stands out", with(toy, here, `maxModelLen: 64, memory: kvCache: "64MiB", scheduler: maxNumSeqs: 4`)},
	} {
		seen[c.rule] = true
		t.Run(c.rule, func(t *testing.T) {
			v := made(t, c.plan(t)).Verdict()
			if v.Rule != c.rule || !strings.Contains(v.Note, c.note) {
				t.Errorf("rule %s: %q, want %s: %q", v.Rule, v.Note, c.rule, c.note)
			}
			if !v.Fits || v.Left <= 0 || v.Memory == "" || v.Carries == "" {
				t.Errorf("%+v", v)
			}
		})
	}
	for _, name := range plan.RuleNames() {
		if !seen[name] {
			t.Errorf("no plan for rule %s", name)
		}
	}
}

func with(model func(testing.TB) *engine.Model, f backend.Facts, text string) func(*testing.T) plan.Inputs {
	return func(t *testing.T) plan.Inputs { return in(lines(t, text), model(t), f) }
}

// TestRulesDocumented: both pages list the rules in their order.
func TestRulesDocumented(t *testing.T) {
	for _, page := range []string{"../../docs/plan-json.md", "../../docs/guide/planning.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		rest := string(text)
		for _, name := range plan.RuleNames() {
			_, after, found := strings.Cut(rest, "`"+name+"`")
			if !found {
				t.Errorf("%s: rule %s is missing or out of order", page, name)
			}
			rest = after
		}
	}
}

// TestOfferHolds: the plan with the offered change carries what the note says.
func TestOfferHolds(t *testing.T) {
	m := smol(t)
	v := made(t, in(lines(t, `memory: kvCache: "1GiB"`), m, server)).Verdict()
	last := func(text string) int {
		l := made(t, in(lines(t, text), m, server)).Capacity.Lengths
		return l[len(l)-1].Running
	}
	if n := last(`memory: kvCache: "46GiB"`); n != 256 || !strings.Contains(v.Note, `"46GiB"`) || !strings.Contains(v.Note, "would carry 256 sequences") {
		t.Errorf("%q, but it carries %d", v.Note, n)
	}
}

// TestShortOffersWhatIsFree: an offer does not exceed the memory that is available now.
func TestShortOffersWhatIsFree(t *testing.T) {
	f := server
	f.FreeBytes = 6 << 30
	if v := made(t, in(lines(t, `memory: kvCache: "1GiB"`), smol(t), f)).Verdict(); !strings.Contains(v.Note, `memory.kvCache: "4GiB" (now "1GiB")`) {
		t.Errorf("%q", v.Note)
	}
}

// TestVerdictRefused: the verdicts of a plan that does not fit, and of a contract that is not met.
func TestVerdictRefused(t *testing.T) {
	tiny := server
	tiny.TotalBytes = 1 << 30
	_, err := plan.Make(in(lines(t, `maxModelLen: "8K"`), smol(t), tiny))
	short, ok := err.(*plan.DoesNotFitError)
	if !ok {
		t.Fatal(err)
	}
	if v := short.Verdict(); v.Fits || v.Left != -short.Missing || !strings.HasPrefix(v.Note, "the smallest change that fits is ") {
		t.Errorf("%+v", v)
	}
	if s := fmt.Sprintf("%+v", short); strings.Contains(s, "what it would hold") || strings.Count(s, "\n  carries ") != 1 {
		t.Errorf("%s", s)
	}
	_, err = plan.Make(in(lines(t, `memory: kvCache: "1GiB", require: concurrency: ">=6": "8K"`), smol(t), server))
	contract, ok := err.(*plan.ContractError)
	if !ok {
		t.Fatal(err)
	}
	if v := contract.Verdict; v.Fits || v.Rule != "contract-missed" || !strings.HasPrefix(v.Carries, "5 sequences of 8,192 tokens") {
		t.Errorf("%+v", v)
	}
	contract.Verbose = true
	if s := fmt.Sprintf("%+v", contract); !strings.Contains(s, "\nmemory, in bytes\n") {
		t.Errorf("%s", s)
	}
}

// TestRemedyRuns: the change that a refusal names is one that vapp up does not refuse.
func TestRemedyRuns(t *testing.T) {
	_, err := plan.Make(on(t, "google/gemma-4-31B-it", `maxModelLen: "128K"`, "l4"))
	short, ok := err.(*plan.DoesNotFitError)
	if !ok || !slices.ContainsFunc(short.Changes, func(c plan.Change) bool {
		return strings.HasPrefix(c.Path, "parallel.") && strings.HasSuffix(c.Cost, "; plan-only")
	}) {
		t.Fatalf("%+v", err)
	}
	if note := short.Verdict().Note; note != "the smallest change that fits is --gpu: h200 (now NVIDIA L4)" {
		t.Error(note)
	}
}

// TestShortText: the short text begins with the verdict, has at most 25 lines without its warnings and
// the table of ranks, 29 at 80 columns, none wider than asked, and neither ledger nor decisions.
func TestShortText(t *testing.T) {
	most := map[int]int{80: 29, 100: 25, 200: 25} // lines without warnings
	for name, device := range map[string]string{
		"gemma4-fp8": "a100-80g", "gemma4-31b": "h100", "gpt-oss-20b": "h100", "qwen35-27b-fp8": "h200", "qwen2-7b": "l4", "llama-3.2-1b": "v100",
	} {
		source := shipped(t, name+".cue").Model.Source
		i := on(t, source, "", device)
		i.Profile = shipped(t, name+".cue")
		i.Model = inspect(t, plan.Source(i.Profile, ""))
		p := made(t, i)
		for _, width := range []int{80, 100, 200} {
			var b bytes.Buffer
			if err := p.TextAs(&b, plan.Form{Width: width}); err != nil {
				t.Fatal(err)
			}
			got := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
			body, _, _ := strings.Cut(b.String(), "\nwarning: ")
			body, _, _ = strings.Cut(body, "\nconverted: ")
			if before, ranks, ok := strings.Cut(body, "\nranks\n"); ok {
				_, after, _ := strings.Cut(ranks, "\n\n")
				body = before + "\n" + after
			}
			if strings.Count(body, "\n") > most[width] || !strings.HasPrefix(got[2], "  fits         ") {
				t.Errorf("%s, %d columns: %d lines:\n%s", name, width, len(got), b.String())
			}
			if slices.Contains(got, "decided") || slices.Contains(got, "memory, in bytes") {
				t.Errorf("%s has the ledger or the decisions", name)
			}
			for _, line := range got {
				if n := utf8.RuneCountInString(line); n > min(width, plan.TextWidth) && strings.Count(strings.TrimSpace(line), " ") > 0 {
					t.Errorf("%s: %d columns in %d: %q", name, n, width, line)
				}
			}
		}
	}
}
