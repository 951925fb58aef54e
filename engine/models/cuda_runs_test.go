package models

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// onDevice returns the CUDA layout of a catalogued device.
func onDevice(t testing.TB, device string) backend.Layout {
	t.Helper()
	return onDeviceWith(t, device, backend.Settings{})
}

func onDeviceWith(t testing.TB, device string, s backend.Settings) backend.Layout {
	t.Helper()
	d, err := devices.Find(device)
	if err != nil {
		t.Fatal(err)
	}
	l, err := cuda.Opener{}.Layout(d.Facts("cuda"), s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// runs returns an error unless layout l can run a model's programs, with keys and values in f, and
// plan their memory.
func runs(l backend.Layout, m Model, f kernels.Format, draft int) error {
	p, err := recordStep(m, f, draftBucket(draft))
	if err != nil {
		return err
	}
	if err := l.Runs(m.Weights(), p); err != nil {
		return err
	}
	_, err = dryRun(l, m, p)
	return err
}

// cudaPlans maps the architectures that GPUs plan and do not run to what they lack.
var cudaPlans = map[string]string{
	"GraniteMoeHybridForCausalLM": "Mamba-2",
}

// runsOrPlans returns the error of runs, unless it names what GPUs lack for the model's architecture.
func runsOrPlans(l backend.Layout, c checkpoint.Config, m Model, f kernels.Format, draft int) error {
	err := runs(l, m, f, draft)
	if lack := cudaPlans[c.Architecture]; lack != "" && errors.Is(err, backend.ErrUnsupported) && strings.Contains(err.Error(), lack) {
		return nil
	}
	return err
}

// TestCUDARuns checks that GPUs run every model of the catalogue but those of cudaPlans, as published and with linear
// layers in fp8, with keys and values in 16 and 8 bits, and with fp8 activations if weights are
// fp8.
func TestCUDARuns(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	list, err := Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		cfg, err := e.Config()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []Build{{}, {Quantize: kernels.F8E4M3}} {
			if b.Quantize != kernels.Invalid && e.Quantization != "bf16" {
				continue
			}
			m, err := buildModel(cfg, b)
			if err != nil {
				t.Fatalf("%s: %v", e.Name, err)
			}
			for device, f := range map[string]kernels.Format{"h100": kernels.BF16, "l40s": kernels.F8E4M3} {
				if err := runsOrPlans(onDevice(t, device), cfg, m, f, 0); err != nil {
					t.Errorf("%s on %s, %v, keys as %v: %v", e.Name, device, b.Quantize, f, err)
				}
			}
			if b.Quantize != kernels.Invalid || strings.HasPrefix(e.Quantization, "fp8") {
				l := onDeviceWith(t, "h100", backend.Settings{Activations: backend.FP8Activations})
				if err := runsOrPlans(l, cfg, m, kernels.BF16, 0); err != nil {
					t.Errorf("%s, %v, with activations in fp8: %v", e.Name, b.Quantize, err)
				}
			}
		}
	}
}

// TestCUDARunsForms checks that other builds run too, and the vision towers of models that see.
func TestCUDARunsForms(t *testing.T) {
	type form struct {
		name, model string
		config      map[string]any
		build       Build
		draft       int
	}
	forms := []form{
		{"its own drafts", qwen27, nil, Build{Draft: 2}, 2},
		{"another's drafts", qwen27, nil, Build{Verify: 4}, 4},
		{"keys rebuilt", "gemma-4-26b-a4b", nil, Build{Rebuild: true}, 0},
		{"keys rebuilt", "gemma-4-31b", nil, Build{Rebuild: true}, 0},
		{"media", "gemma-4-26b-a4b", nil, Build{Vision: true}, 0},
		{"media", qwen27, nil, Build{Vision: true}, 0},
		{"two ranks", "gpt-oss-20b", nil, Build{Shard: backend.Shard{World: 2}}, 0},
		{"two stages", "gpt-oss-20b", nil, Build{Pipe: backend.Shard{World: 2}}, 0},
	}
	for _, q := range quantizations {
		for _, model := range []string{"meta-llama/Llama-3.2-1B", "Qwen/Qwen2-7B", "Qwen/Qwen3-8B"} {
			forms = append(forms, form{q.name, model, q.config, q.build, 0})
		}
	}
	l := onDevice(t, "h100")
	for _, c := range forms {
		m, err := buildModel(alterConfig(t, c.model, c.config), c.build)
		if err != nil {
			t.Fatalf("%s, %s: %v", c.model, c.name, err)
		}
		if err := runs(l, m, kernels.BF16, c.draft); err != nil {
			t.Errorf("%s, %s: %v", c.model, c.name, err)
		}
		if !c.build.Vision {
			continue
		}
		p, err := m.(Encoder).RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: 10080, Seqs: 1}})
		if err == nil {
			err = l.Runs(m.Weights(), p)
		}
		if err != nil {
			t.Errorf("%s, the tower: %v", c.model, err)
		}
	}
}
