package lock

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// inputs returns a profile and an invented plan of it.
func inputs(t testing.TB, lines string) Inputs {
	t.Helper()
	text := "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"chat\"\n\tmodel: source: \"org/model\"\n" + lines + "}\n"
	p, err := schema.Parse(filepath.Join(t.TempDir(), "chat.cue"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pl := &plan.Plan{
		Profile: "chat", Backend: "cpu", Facts: backend.Facts{Backend: "cpu", Device: "sixteen cores", TotalBytes: 64 << 30, FreeBytes: 7, Cores: 16},
		Model:    plan.Model{Source: "org/model", Where: "checkpoint"},
		Ledger:   plan.Ledger{{Name: "weights", Bytes: 1000, Basis: plan.Exact}, {Name: "mapped", Bytes: 99, Basis: plan.Apart}},
		Capacity: plan.Capacity{Tokens: 4096, Lengths: []plan.Fit{{Tokens: 1024, Sequences: 4}}},
		Choices:  []backend.Choice{{Name: "threads", Value: "16"}},
	}
	return Inputs{
		Vapp: "v1.2.3", Profile: p, Plan: pl,
		Files: []File{
			{Name: "config.json", Size: 10, SHA256: strings.Repeat("ab", 32), ModTime: time.Unix(1_700_000_000, 5).UTC()},
			{Name: "model.safetensors", Size: 1 << 30, SHA256: strings.Repeat("cd", 32), ModTime: time.Unix(1_700_000_001, 0).UTC()},
		},
	}
}

func made(t testing.TB, in Inputs) *Lock {
	t.Helper()
	l, err := Of(in)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRoundTrip checks that a lock parses to an equal lock, and has no drift from itself.
func TestRoundTrip(t *testing.T) {
	l := made(t, inputs(t, ""))
	text, err := l.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("chat.lock.json", text)
	if err != nil {
		t.Fatal(err)
	}
	if d := l.Compare(again); len(d) > 0 {
		t.Errorf("%v", d)
	}
	if d := again.Compare(l); len(d) > 0 {
		t.Errorf("%v", d)
	}
	twice, err := again.Marshal()
	if err != nil || !bytes.Equal(text, twice) {
		t.Errorf("%v\n%s", err, cmp.Diff(string(text), string(twice)))
	}
	if strings.Contains(string(text), "free_bytes") || strings.Contains(string(text), "mapped") {
		t.Errorf("it holds what is of the moment:\n%s", text)
	}
}

// TestCompare checks the line of each kind of drift.
func TestCompare(t *testing.T) {
	was := made(t, inputs(t, "\tserve: apiKeys: [\"sk-old\"]\n"))
	for name, c := range map[string]struct {
		change func(*Inputs)
		want   []string
	}{
		"nothing": {func(in *Inputs) { in.Files[0].ModTime = time.Now() }, nil},
		"version": {func(in *Inputs) { in.Vapp = "v2" }, []string{"vapp: locked v1.2.3, now v2"}},
		"profile": {
			func(in *Inputs) {
				in.Profile = inputs(t, "\tlog: level: \"debug\"\n\tserve: apiKeys: [\"sk-old\"]\n").Profile
			},
			[]string{`profile: log.level: locked "info", now "debug"`},
		},
		"key": {
			func(in *Inputs) { in.Profile = inputs(t, "\tserve: apiKeys: [\"sk-new\"]\n").Profile },
			[]string{"profile: serve.apiKeys: locked another key in clear text, now this one"},
		},
		"plan": {
			func(in *Inputs) {
				in.Plan.Ledger[0].Bytes++
				in.Plan.Options.MaxNumSeqs = 3
				in.Plan.Facts.Cores = 8
			},
			[]string{
				"plan: ledger.weights: locked 1000, now 1001", "plan: options.max_num_seqs: locked 0, now 3",
				"plan: total_bytes: locked 1000, now 1001", "machine: cores: locked 16, now 8",
			},
		},
		"machine alone": {func(in *Inputs) { in.Plan.Facts.Device, in.Plan.Ledger[1].Bytes = "another", 0 }, nil},
		"file": {
			func(in *Inputs) { in.Files[1].SHA256 = strings.Repeat("ef", 32) },
			[]string{"checkpoint: model.safetensors: locked 1073741824 bytes sha256 cdcdcdcdcdcd, now 1073741824 bytes sha256 efefefefefef"},
		},
		"no file":  {func(in *Inputs) { in.Files = in.Files[:1] }, []string{"checkpoint: model.safetensors: locked 1073741824 bytes sha256 cdcdcdcdcdcd, now not here"}},
		"new file": {func(in *Inputs) { in.Files = append(in.Files, File{Name: "x", SHA256: strings.Repeat("0", 64)}) }, []string{"checkpoint: x: locked nothing, now 0 bytes sha256 000000000000"}},
	} {
		in := inputs(t, "\tserve: apiKeys: [\"sk-old\"]\n")
		c.change(&in)
		var got []string
		for _, d := range was.Compare(made(t, in)) {
			got = append(got, d.String())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if text, _ := was.Marshal(); strings.Contains(string(text), "sk-old") {
		t.Error("the lock shows a key")
	}
}

// TestParseRefuses checks the errors of invalid locks.
func TestParseRefuses(t *testing.T) {
	text, err := made(t, inputs(t, "")).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	for name, bad := range map[string]string{
		"empty":     "",
		"no lock":   "{}",
		"newer":     strings.Replace(good, `"lock_version": 1`, `"lock_version": 2`, 1),
		"unknown":   strings.Replace(good, `"vapp"`, `"colour"`, 1),
		"trailing":  good + "{}",
		"hash":      strings.Replace(good, strings.Repeat("ab", 32), "ab", 1),
		"size":      strings.Replace(good, `"size": 10`, `"size": -10`, 1),
		"up":        strings.Replace(good, `"config.json"`, `"../config.json"`, 1),
		"absolute":  strings.Replace(good, `"config.json"`, `"/config.json"`, 1),
		"twice":     strings.Replace(good, `"config.json"`, `"model.safetensors"`, 1),
		"too large": good + strings.Repeat(" ", MaxBytes),
		"deep":      strings.Repeat("[", 100_000),
	} {
		_, err := Parse("chat.lock.json", []byte(bad))
		var e *Error
		if !errors.As(err, &e) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, err := made(f, inputs(f, "")).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"lock_version":1,"profile":{"sha256":"` + strings.Repeat("0", 64) + `","resolved":{"a":{"b":[1e999]}}}}`))
	whole, err := Parse("whole", text)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse("x", data)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Fatalf("%T: %q", err, err)
			}
			return
		}
		for _, d := range append(l.Compare(whole), whole.Compare(l)...) {
			if strings.ContainsAny(d.String(), "\n\r\x1b") {
				t.Fatalf("%q", d)
			}
		}
		again, err := l.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		m, err := Parse("again", again)
		if err != nil {
			t.Fatalf("%v\n%s", err, again)
		}
		if d := l.Compare(m); len(d) > 0 {
			t.Fatalf("%v", d)
		}
	})
}
