package steps

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/speed"
	"vapp.dev/engine/steptime"
)

// TestLoads: every load fits the engine, from the smallest to a large one, and they have decoding and prompts.
func TestLoads(t *testing.T) {
	for _, l := range []Limits{{16, 1, 64, 64}, {64, 4, 256, 512}, {512, 1, 2048, 4096}, {2048, 64, 8192, 40_000}, {8192, 256, 131_072, 1 << 20}} {
		decode := false
		for _, w := range l.loads() {
			longest := w.prompt + w.output
			for _, p := range w.then {
				longest = max(longest, p+2)
			}
			decode = decode || w.output > 1
			if w.streams < 1 || w.streams > l.Seqs || w.prompt < 1 || longest > l.ModelLen || int64(w.streams*(w.prompt+w.output)) > l.KVTokens {
				t.Errorf("%+v: %+v", l, w)
			}
		}
		if !decode {
			t.Errorf("%+v: nothing decodes", l)
		}
	}
}

// TestRecorder keeps steps with work and time, and leaves out those beside a preemption.
func TestRecorder(t *testing.T) {
	var r Recorder
	w := steptime.Work{Decode: 2, Reads: 30}
	r.Step(engine.StepStats{Work: w, Took: time.Second})
	r.Step(engine.StepStats{Work: w, Took: time.Second, Preempted: 1})
	r.Step(engine.StepStats{Took: time.Second})
	if s := r.Samples(); len(s) != 1 || s[0] != (speed.Sample{Decode: 2, Reads: 30, Seconds: 1}) {
		t.Errorf("%+v", s)
	}
}

// file returns a valid file.
func file(t testing.TB) []byte {
	one := speed.Curve{X: []float64{1, 2}, Y: []float64{1, 2}}
	text, err := File{Model: "m", Backend: "cpu", Steps: speed.Steps{Rows: one, Ratios: one}}.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRead reads what was written, and refuses other files in one line with the remedy.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.json")
	write := func(text []byte) {
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	good := file(t)
	write(good)
	f, err := Read(path)
	if err != nil || f.Model != "m" {
		t.Fatal(f, err)
	}
	var other *MismatchError
	if f.Matches(path, File{Model: "m", Backend: "cpu"}) != nil || !errors.As(f.Matches(path, File{Model: "m", Backend: "cuda"}), &other) {
		t.Error(other)
	}
	for name, text := range map[string][]byte{
		"empty": nil, "cut": good[:40], "kind": bytes.Replace(good, []byte(kind), []byte("other"), 1),
		"format": bytes.Replace(good, []byte(`"format": 1`), []byte(`"format": 9`), 1), "steps": bytes.Replace(good, []byte("per_sequence\": 0"), []byte("per_sequence\": -1"), 1),
		"large": bytes.Repeat([]byte(" "), largest+1),
	} {
		write(text)
		var e *FileError
		if _, err := Read(path); !errors.As(err, &e) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "vapp bench steps") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzRead: no file makes a step without a time.
func FuzzRead(f *testing.F) {
	f.Add(file(f))
	f.Add([]byte(`{"kind":"vapp-steps","format":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parse("f", text)
		if err != nil {
			return
		}
		if s := m.Steps.Step([]speed.Row{{From: 3, Count: 1}, {Count: 40}}); !(s > 0) {
			t.Errorf("%q: %g seconds", text, s)
		}
	})
}
