package sched

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speculate"
	"vapp.dev/engine/steptime"
	"vapp.dev/internal/goldentest"
)

// TestGolden plays testdata/*.txtar. Section "in" has one command a line:
//
//	options maxModelLen=64 maxNumSeqs=4 maxNumBatchedTokens=16 maxSamples=4 lag=0 chunked=true policy=fcfs pages=16 block=4 caching=true swap=0
//	        verify=N drafts=N lookup=MIN-MAX encoded=N patches=N whole=1
//	add ID prompt=N maxTokens=N [text=LETTERS] [salt=S] [priority=N] [lead=ID] [promptLogprobs=N] [badWords=1] [seed=N] [stop=N] [items=ITEMS]
//	cancel ID
//	policy NAME
//	pace N          limits prefill to N tokens between two tokens of a decoding sequence; 0: no limit
//	beat [N]        iterations of the loop
//	run             iterations until it is idle
//
// and "out" is the trace: ID[from:to] are the computed positions, <r the sampled row of the previous
// step that gives the token, ?p+n the prompt logprobs, >r the row that samples, +n the proposals before
// it, =r the row of a known token. lead=ID is the PrefixOwner. The device's proposals are sometimes
// right and sometimes wrong, the same in every run. The tokens of a sequence with an odd seed depend on
// the previous token only. ITEMS are the pictures of a prompt, LETTER:AT+TOKENS with commas between; each
// takes a patch for each token.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			g := &script{t: t, out: &out, seqs: map[string]*Seq{}}
			for line := range strings.Lines(string(a.Files[0].Data)) {
				g.line(strings.TrimSpace(line))
			}
			for _, q := range g.seqs {
				if q.Ended() && g.rig.finish[q] != NotFinished {
					if err := g.rig.verify(q); err != nil {
						t.Error(err)
					}
				}
			}
			a.Files = append(a.Files[:1], txtar.File{Name: "out", Data: []byte(out.String())})
			goldentest.CompareArchive(t, file, a)
		})
	}
}

// script plays one golden file.
type script struct {
	t    *testing.T
	out  *strings.Builder
	rig  *rig
	seqs map[string]*Seq
}

func (g *script) line(line string) {
	if line == "" || line[0] == '#' {
		return
	}
	fmt.Fprintf(g.out, "%s\n", line)
	words := strings.Fields(line)
	opts := map[string]string{}
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			opts[k] = v
		}
	}
	switch words[0] {
	case "options":
		g.start(opts)
	case "add":
		g.add(words[1], opts)
	case "cancel":
		fmt.Fprintf(g.out, "  %v\n", g.rig.s.Cancel(g.seqs[words[1]]))
	case "policy":
		p, err := ParsePolicy(words[1])
		if err != nil {
			g.t.Fatal(err)
		}
		g.rig.s.SetPolicy(p)
	case "pace":
		g.rig.s.SetPrefillLimiter(nil)
		if n := g.number(words[1], 0); n > 0 {
			g.rig.s.SetPrefillLimiter(at(n))
		}
	case "beat":
		n := 1
		if len(words) > 1 {
			n = g.number(words[1], 1)
		}
		for range n {
			g.beat()
		}
	case "run":
		for i := 0; !g.rig.s.Idle(); i++ {
			if g.beat(); i > 1000 {
				g.t.Fatal("never idle")
			}
		}
	default:
		g.t.Fatalf("unknown command %q", line)
	}
	running, waiting := g.rig.s.Counts()
	use := g.rig.pool.Usage(0)
	fmt.Fprintf(g.out, "  = running %d waiting %d pages %d cached %d\n", running, waiting, use.Used, use.Cached)
}

func (g *script) beat() {
	if _, err := g.rig.beat(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *script) number(s string, def int) int {
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

func (g *script) start(m map[string]string) {
	policy, err := ParsePolicy(m["policy"])
	if m["policy"] != "" && err != nil {
		g.t.Fatal(err)
	}
	o := Options{
		MaxModelLen: g.number(m["maxModelLen"], 64), MaxNumSeqs: g.number(m["maxNumSeqs"], 4),
		MaxNumBatchedTokens: g.number(m["maxNumBatchedTokens"], 16), MaxSamples: g.number(m["maxSamples"], 4),
		Lag: g.number(m["lag"], 0), ChunkedPrefill: m["chunked"] != "false", Policy: policy,
		Verify: g.number(m["verify"], 0), Drafts: g.number(m["drafts"], 0),
		Encoder: Encoder{Rows: g.number(m["encoded"], 0), Budget: g.number(m["patches"], 8), Whole: m["whole"] != ""},
	}
	if from, to, ok := strings.Cut(m["lookup"], "-"); ok {
		o.Lookup = speculate.NGram{Min: g.number(from, 1), Max: g.number(to, 1)}
	}
	if err := o.Validate(); err != nil {
		g.t.Fatal(err)
	}
	l, err := kv.NewLayout([]kv.Spec{{Name: "full", PageBytes: 1 << 20, BlockSize: g.number(m["block"], 4)}})
	if err != nil {
		g.t.Fatal(err)
	}
	g.rig = newRig(g.t, o, l, g.number(m["pages"], 16), m["caching"] != "false").swap(g.number(m["swap"], 0))
	g.rig.trace = func(format string, args ...any) { fmt.Fprintf(g.out, "  "+format+"\n", args...) }
}

func (g *script) add(id string, m map[string]string) {
	p := sample.Default()
	p.MaxTokens = g.number(m["maxTokens"], 16)
	p.PromptLogprobs = g.number(m["promptLogprobs"], -1)
	if m["badWords"] != "" {
		p.BadWords = [][]int32{{vocab + 1, vocab + 2}}
	}
	sp := Spec{ID: id, Params: &p, Salt: m["salt"], Priority: g.number(m["priority"], 0), Seed: uint64(g.number(m["seed"], 0)), PrefixOwner: g.seqs[m["lead"]]}
	if m["stop"] != "" {
		p.StopTokenIDs = []int32{int32(g.number(m["stop"], 0))}
	}
	text := m["text"]
	if text == "" {
		text = id
	}
	for i := range g.number(m["prompt"], 1) {
		sp.Prompt = append(sp.Prompt, int32(text[i%len(text)]))
	}
	for _, text := range strings.FieldsFunc(m["items"], func(r rune) bool { return r == ',' }) {
		place := strings.Split(text[2:], "+")
		n := g.number(place[1], 1)
		sp.Items = append(sp.Items, Item{Hash: [32]byte{text[0]}, At: g.number(place[0], 0), Tokens: n, Pixels: make([]byte, n), Across: make([]int32, n), Down: make([]int32, n)})
	}
	q := NewSeq(sp)
	if err := g.rig.s.Add(q); err != nil {
		fmt.Fprintf(g.out, "  %v\n", err)
		return
	}
	g.seqs[id] = q
}

// at is a PrefillLimiter: at most that many prompt tokens between two tokens of a stream.
type at int

func (a at) PrefillBudget(w steptime.Work, _, n int) int {
	return min(n, max(0, int(a)/max(1, w.StepsPerToken)-w.Prompt-w.Patches))
}

func (a at) Fits(w steptime.Work) bool { return w.Prompt+w.Patches <= int(a)/max(1, w.StepsPerToken) }
