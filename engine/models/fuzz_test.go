package models

import (
	"encoding/json"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// FuzzRecord plans any config.json on the dry backend, for any rank and build. Errors must be
// typed, a model's program must be sound and its sizes finite, and the sizes in the config must not
// be allocated.
func FuzzRecord(f *testing.F) {
	list, err := Catalogue()
	if err != nil {
		f.Fatal(err)
	}
	for i, e := range list {
		c, err := e.Config()
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(c.Raw), byte(1), byte(1), byte(i))
		f.Add([]byte(c.Raw), byte(2+i%3), byte(1+i%2), byte(17*i))
	}
	for _, q := range quantizations {
		f.Add([]byte(alterConfig(f, "Qwen/Qwen2-0.5B", q.config).Raw), byte(2), byte(1), byte(0))
	}
	f.Add([]byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":1048576,"intermediate_size":16777216,"num_hidden_layers":1024,
		"num_attention_heads":16384,"head_dim":16384,"vocab_size":16777216,"max_position_embeddings":268435456,"rms_norm_eps":1e-6}`), byte(1), byte(1), byte(0))
	f.Add([]byte(`{"architectures":["Llama\nForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":64,"num_hidden_layers":1,
		"num_attention_heads":2,"vocab_size":512,"max_position_embeddings":64,"rms_norm_eps":1e-6}`), byte(1), byte(1), byte(0))
	f.Add([]byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":64,"num_hidden_layers":1,"hidden_act":"`+strings.Repeat("a", 4000)+`",
		"num_attention_heads":2,"vocab_size":512,"max_position_embeddings":64,"rms_norm_eps":1e-6}`), byte(1), byte(1), byte(0))
	all := layouts(f)
	f.Fuzz(func(t *testing.T, config []byte, tensor, pipe, form byte) {
		if len(config) < 1<<16 {
			plan(t, all, config, buildOf(tensor, pipe, form))
		}
	})
}

// FuzzRecordKeys is FuzzRecord for the config of a known model with two changed keys, nested ones
// included.
func FuzzRecordKeys(f *testing.F) {
	list, err := Catalogue()
	if err != nil {
		f.Fatal(err)
	}
	for i := range list {
		f.Add(byte(i), byte(3*i), byte(5*i+1), int64(0), int64(i), byte(i), byte(1), byte(i))
		f.Add(byte(i), byte(7*i), byte(11*i), int64(1)<<(i%40), int64(-i), byte(2), byte(2), byte(3*i))
	}
	all := layouts(f)
	f.Fuzz(func(t *testing.T, model, key1, key2 byte, v1, v2 int64, tensor, pipe, form byte) {
		c, err := list[int(model)%len(list)].Config()
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(c.Raw, &m); err != nil {
			t.Fatal(err)
		}
		set(m, int(key1), v1)
		set(m, int(key2), v2)
		config, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		plan(t, all, config, buildOf(tensor, pipe, form))
	})
}

// set changes the value of the n-th key of a config, nested keys counted after their parent's, to a
// number or another JSON value.
func set(m map[string]any, n int, v int64) {
	type place struct {
		in  map[string]any
		key string
	}
	var places []place
	var walk func(map[string]any)
	walk = func(in map[string]any) {
		for _, k := range slices.Sorted(maps.Keys(in)) {
			places = append(places, place{in, k})
		}
		for _, k := range slices.Sorted(maps.Keys(in)) {
			if part, ok := in[k].(map[string]any); ok {
				walk(part)
			}
		}
	}
	walk(m)
	if len(places) == 0 {
		return
	}
	var value any = v
	switch v {
	case -1:
		value = nil
	case -2:
		value = "full_attention"
	case -3:
		value = []any{}
	case -4:
		value = 0.5
	case -5:
		value = map[string]any{}
	case -6:
		value = true
	}
	p := places[n%len(places)]
	p.in[p.key] = value
}

// plan reads, builds, records and plans one config.
func plan(t *testing.T, all map[string]backend.Layout, config []byte, b Build) {
	c, err := checkpoint.ParseConfig("config.json", config)
	if err != nil {
		return
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := buildModel(c, b)
	if err == nil {
		err = planModel(t, all, m, formats[b.Draft%len(formats)])
	}
	runtime.ReadMemStats(&after)
	const most = 1 << 30 // a thousand layers have many names, ops and specs, for each layout
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("%d bytes were allocated", n)
	}
	if err != nil && (!isTyped(err) || len(err.Error()) > 4096 || strings.ContainsRune(err.Error(), '\n')) {
		t.Errorf("%T: %v", err, err)
	}
}

// formats lists the formats of K and V.
var formats = []kernels.Format{kernels.F16, kernels.BF16, kernels.F32, kernels.F8E4M3}

// buildOf derives a rank and a build from three bytes.
func buildOf(tensor, pipe, form byte) Build {
	return Build{
		Shard: backend.Shard{Rank: int(tensor >> 4), World: int(tensor & 15)}, Pipe: backend.Shard{Rank: int(pipe >> 4), World: int(pipe & 15)},
		Dtype:    []kernels.Format{kernels.Invalid, kernels.F32, kernels.F16, kernels.BF16}[form&3],
		Quantize: []kernels.Format{kernels.Invalid, kernels.F8E4M3}[form>>2&1],
		Draft:    int(form>>3&1) * 2, Vision: form>>4&1 == 1, Rebuild: form>>5&1 == 1,
	}
}

// planModel records a model and plans it on the dry backend.
func planModel(t *testing.T, all map[string]backend.Layout, m Model, f kernels.Format) error {
	p, err := recordStep(m, f, backend.Bucket{Tokens: 64, Seqs: 4, Samples: 4})
	if err != nil {
		return err
	}
	programs := []*backend.Program{p}
	if e, ok := m.(Encoder); ok && e.Patches() > 0 {
		v, err := e.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: e.Patches(), Seqs: 1, Samples: 1}})
		if err == nil {
			err = v.Check()
		}
		if err != nil {
			return err
		}
		programs = append(programs, v)
	}
	n := elements(m)
	for on, l := range all {
		for _, p := range programs {
			r, err := dryRun(l, m, p)
			if err != nil {
				if !errors.Is(err, backend.ErrUnsupported) {
					return err
				}
				continue
			}
			if w := r.Arenas[backend.Weights]; n <= 0 || w < n/2 || r.Arenas[backend.Scratch] < p.Scratch || r.Arenas[backend.Workspace] < 0 {
				t.Errorf("%s: %d elements, arenas of %v", on, n, r.Arenas)
			}
		}
	}
	return nil
}

// isTyped reports whether an error has a documented type. A program that Check refuses does not
// count: it is a bug in the model's code.
func isTyped(err error) bool {
	var unsupported *UnsupportedError
	var mismatch *MismatchError
	var file *checkpoint.Error
	return errors.As(err, &unsupported) || errors.As(err, &mismatch) || errors.As(err, &file) || errors.Is(err, backend.ErrUnsupported)
}
