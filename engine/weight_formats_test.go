package engine_test

import (
	"encoding/json"
	"errors"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// weights is the stored format of a model's matrices. For 8-bit formats it has the
// quantization_config, which defines the scales. The zero value keeps the model's own format.
type weights struct {
	format kernels.Format
	scales string
}

// stored returns m with dummy weights whose matrices are stored as f.
func stored(m *engine.Model, f weights) (*engine.Model, error) {
	cfg := m.Config
	plain := map[kernels.Format]string{kernels.F32: "float32", kernels.F16: "float16", kernels.BF16: "bfloat16", kernels.F8E4M3: "bfloat16", kernels.I8: "bfloat16"}
	if cfg.TorchDtype = plain[f.format]; f.scales != "" {
		cfg.QuantizationConfig = json.RawMessage(f.scales)
	} else if cfg.TorchDtype == "" {
		cfg.Dialect = "gguf"
	}
	tensors, err := models.Tensors(cfg)
	if err != nil {
		return nil, err
	}
	for i := range tensors {
		switch t := &tensors[i]; {
		case f.scales != "": // models.Tensors knows
		case len(t.Shape) < 2:
			t.Format = kernels.F32
		case f.format == kernels.MXFP4 && strings.Contains(t.Name, "embed"):
			t.Format = kernels.F16 // a table that is looked up in
		default:
			t.Format = f.format
		}
	}
	ck, err := checkpoint.Dummy(cfg, tensors, 3)
	if err != nil {
		return nil, err
	}
	family, err := models.New(ck, m.Source.Build)
	if err != nil {
		return nil, errors.Join(err, ck.Close())
	}
	out := *m
	out.Source.Format = "dummy"
	out.Config, out.Checkpoint, out.Family, out.Where = cfg, ck, family, engine.FromConfig
	return &out, m.Checkpoint.Close()
}
