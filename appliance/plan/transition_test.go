package plan_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/internal/goldentest"
	"vapp.dev/schema"
)

// transitionCase is a change of a profile of SmolLM2's shapes with a KV cache of 1 GiB.
type transitionCase struct {
	name     string
	on       string // backend cpu (""), or a GPU of the catalogue
	memory   int64  // of the machine or the device; 0: 8 GiB; -1: unknown
	old, new string // fields that are added to the profile
	to       string // the new profile is on this GPU, or on the "cpu"
	files    bool   // the model is one of 2 layers with real files
	in       func(*plan.ChangeInputs)
}

const fixed = "\tmemory: kvCache: \"1GiB\"\n"

var transitionCases = []transitionCase{
	{name: "more sequences, both fit", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n"},
	{name: "a larger KV cache, both do not fit", old: fixed, new: "\tmemory: kvCache: \"6GiB\"\n"},
	{name: "utilization gives each all the memory", old: "", new: "\tscheduler: maxNumSeqs: 128\n"},
	{name: "asked to drain", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n", in: func(c *plan.ChangeInputs) { c.Mode = "drain" }},
	{name: "asked to report", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n", in: func(c *plan.ChangeInputs) { c.Mode = "report" }},
	{name: "the same LoRA slots", old: fixed + slots(2), new: fixed + slots(2) + "\tmaxModelLen: 1024\n"},
	{name: "other LoRA slots", old: fixed + slots(2), new: fixed + slots(4)},
	{name: "quantized at load", old: fixed, new: fixed + "\tquantization: \"fp8\"\n"},
	{name: "quantized at load, asked to drain", old: fixed, new: fixed + "\tquantization: \"fp8\"\n",
		in: func(c *plan.ChangeInputs) { c.Mode, c.Loaded = "drain", schema.Duration(8*time.Second) }},
	{name: "quantized at load, too little memory", memory: 3 << 30, old: fixed, new: fixed + "\tquantization: \"fp8\"\n"},
	{name: "another variant", old: fixed, new: fixed + "\tcpu: variant: \"avx2\"\n"},
	{name: "other activations", old: fixed, new: fixed + "\tcpu: activations: \"int8\"\n"},
	{name: "the model's files have changed", old: fixed, new: fixed, in: func(c *plan.ChangeInputs) { c.NewFiles[0]++ }},
	{name: "the memory is unknown", memory: -1, old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n"},
	{name: "running, with room", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n", in: besideFree(6 << 30)},
	{name: "running, others use the memory", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n", in: besideFree(1 << 30)},
	{name: "running, less of it is the process's", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n",
		in: func(c *plan.ChangeInputs) { besideFree(2 << 30)(c); c.Resident = 900 << 20 }},
	{name: "running, a limit of the process", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n", in: func(c *plan.ChangeInputs) {
		besideFree(6 << 30)(c)
		c.New.Facts.Limits = []backend.ProcessLimit{{Name: backend.DataSize, Limit: 3 << 30, Used: 2 << 30}}
	}},
	{name: "on a GPU", on: "h100-80g", old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n"},
	{name: "on a GPU, quantized", on: "h100-80g", old: fixed, new: fixed + "\tquantization: \"fp8\"\n",
		in: func(c *plan.ChangeInputs) { c.Host = plan.HostMemory{Total: 64 << 30} }},
	{name: "on a GPU, too little memory of the host", on: "h100-80g", old: fixed, new: fixed + "\tquantization: \"fp8\"\n",
		in: func(c *plan.ChangeInputs) {
			c.Host = plan.HostMemory{Total: 64 << 30, Free: 100 << 20, Resident: 800 << 20}
		}},
	{name: "on a GPU, files that are mapped while they are loaded", on: "h100-80g", files: true, old: fixed, new: fixed + "\tmodel: dtype: \"float32\"\n",
		in: func(c *plan.ChangeInputs) { c.Host = plan.HostMemory{Total: 64 << 30} }},
	{name: "from the CPU to a GPU", old: fixed, new: fixed, to: "h100-80g", in: func(c *plan.ChangeInputs) { c.Host = plan.HostMemory{Total: 8 << 30} }},
	{name: "from a GPU to the CPU", on: "h100-80g", old: fixed, new: fixed, to: "cpu"},
	{name: "no prefix cache", old: fixed + "\tscheduler: prefixCaching: false\n", new: fixed},
}

func slots(n int) string { return fmt.Sprintf("\tlora: {maxLoras: %d, maxRank: 16}\n", n) }

// besideFree makes an engine of the old plan run, beside which that much memory is free.
func besideFree(free int64) func(*plan.ChangeInputs) {
	return func(c *plan.ChangeInputs) { c.Running, c.New.Facts.FreeBytes = true, free }
}

// inputs plans both sides of the case.
func (c transitionCase) inputs(t *testing.T) plan.ChangeInputs {
	t.Helper()
	m := smol(t)
	if c.files {
		m = toy(t)
	}
	files, err := m.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	side := func(text, on string) *plan.Plan {
		f := server
		f.Backend, f.TotalBytes, f.Cores, f.Variants = "cpu", 8<<30, 4, []string{"avx512", "avx2", "go"}
		if c.memory != 0 {
			f.TotalBytes = max(0, c.memory)
		}
		var op backend.Opener = cpu.Opener{}
		if on != "" && on != "cpu" {
			d, err := devices.Find(on)
			if err != nil {
				t.Fatal(err)
			}
			f, op = d.Facts("cuda"), cuda.Opener{}
		}
		i := in(profile(t, "p.cue", "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"x\"\n\tmodel: source: \"smol\"\n"+text+"}\n"), m, f)
		i.Opener = op
		if i, err = built(i); err != nil {
			t.Fatal(err)
		}
		return made(t, i)
	}
	to := c.to
	if to == "" {
		to = c.on
	}
	out := plan.ChangeInputs{Old: side(c.old, c.on), New: side(c.new, to), OldFiles: files, NewFiles: files, Mode: "swap", DrainTimeout: schema.Duration(30 * time.Second)}
	if c.in != nil {
		c.in(&out)
	}
	return out
}

// TestTransitions compares the texts of changes.
func TestTransitions(t *testing.T) {
	path := absolute(t, "testdata/transitions.txt")
	var b strings.Builder
	for _, c := range transitionCases {
		i := c.inputs(t)
		tr, err := plan.NewTransition(i)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		fmt.Fprintf(&b, "%s\n%s\n", c.name, tr.String())
		checkTransition(t, c.name, i, tr)
	}
	goldentest.Compare(t, path, b.String())
}

// checkTransition checks what holds of each change.
func checkTransition(t *testing.T, name string, i plan.ChangeInputs, tr plan.Transition) {
	t.Helper()
	if tr.Overlaps != (tr.Gap == plan.Gap{}) || tr.KeepsWeights != (tr.Way == plan.Rebuild) || tr.Overlaps && tr.Way == plan.Drain || !tr.Overlaps && tr.Way == plan.Beside {
		t.Errorf("%s: %+v", name, tr)
	}
	if tr.Overlaps && (tr.Limit == 0 || tr.Peak > tr.Limit || tr.Ledger.Total() != tr.Peak) {
		t.Errorf("%s: both engines at once take %d of %d bytes, the ledger has %d", name, tr.Peak, tr.Limit, tr.Ledger.Total())
	}
	if !tr.Overlaps && tr.Ledger.Total() != i.New.Ledger.Total() {
		t.Errorf("%s: the ledger of one engine has %d bytes of %d", name, tr.Ledger.Total(), i.New.Ledger.Total())
	}
	for a := backend.Arena(0); a < backend.Swap; a++ {
		want := i.New.Ledger.Bytes(a.String())
		if tr.Overlaps && i.Old.Backend == i.New.Backend && !(a == backend.Weights && tr.KeepsWeights) {
			want += i.Old.Ledger.Bytes(a.String())
		}
		if got := tr.Ledger.Bytes(a.String()); got != want {
			t.Errorf("%s: arena %v has %d bytes, want %d", name, a, got, want)
		}
	}
	if tr.Overlaps && tr.GoMemoryLimit != i.Old.GoMemoryLimit+i.New.GoMemoryLimit {
		t.Errorf("%s: the Go heap is limited to %d bytes", name, tr.GoMemoryLimit)
	}
}

// TestTransitionRefused: several ranks, and an engine that does not fit even alone.
func TestTransitionRefused(t *testing.T) {
	c := transitionCase{on: "h100-80g", old: fixed, new: fixed + "\tparallel: tensor: 3\n"}
	var placed *schema.Error
	if _, err := plan.NewTransition(c.inputs(t)); !errors.As(err, &placed) || placed.List[0].Path != "parallel.tensor" || !strings.Contains(err.Error(), "restart all ranks") {
		t.Errorf("to several ranks: %v", err)
	}
	c.old, c.new = c.new, c.old
	if _, err := plan.NewTransition(c.inputs(t)); !errors.As(err, &placed) {
		t.Errorf("from several ranks: %v", err)
	}
	c = transitionCase{old: fixed, new: "\tmemory: kvCache: \"6GiB\"\n", in: besideFree(1 << 30)}
	var short *plan.NotFreeError
	if _, err := plan.NewTransition(c.inputs(t)); !errors.As(err, &short) || short.Free < 1<<30 {
		t.Errorf("too large: %v", err)
	}
	c = transitionCase{old: fixed, new: fixed + "\tscheduler: maxNumSeqs: 128\n", in: func(c *plan.ChangeInputs) {
		besideFree(6 << 30)(c) // the limit is between what the process has with and without weights that stay
		c.New.Facts.Limits = []backend.ProcessLimit{{Name: backend.DataSize, Limit: 2560 << 20, Used: 2 << 30}}
	}}
	var limit *plan.LimitError
	if _, err := plan.NewTransition(c.inputs(t)); !errors.As(err, &limit) {
		t.Errorf("above a limit of the process: %v", err)
	}
}

// TestTransitionOfRef: the Go heap of two engines of backend ref has their shared weights once.
func TestTransitionOfRef(t *testing.T) {
	m, f := smol(t), server
	i := in(profile(t, "p.cue", "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"x\"\n\tmodel: source: \"smol\"\n"+fixed+"}\n"), m, f)
	i.Opener = ref.Opener{}
	p := made(t, i)
	tr, err := plan.NewTransition(plan.ChangeInputs{Old: p, New: p, Mode: "swap"})
	if err != nil || !tr.Overlaps || tr.Way != plan.Rebuild || tr.GoMemoryLimit != 2*p.GoMemoryLimit-p.Ledger.Bytes("weights") {
		t.Errorf("%+v, %v; one has %d", tr, err, p.GoMemoryLimit)
	}
}

// absolute returns a path of the package: tests change the directory.
func absolute(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
