package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"vapp.dev/tests/peer/figures"
)

// limits adds a run with the machine's maximum bandwidth and arithmetic rates.
func (b bench) limits(ctx context.Context, p *figures.Part) error {
	r, err := execute(ctx, filepath.Join(b.dir, "limits"))
	if err != nil {
		return err
	}
	v, err := figures.ReadLimits(r.out)
	p.Runs = append(p.Runs, b.result(figures.Machine, r, v))
	return err
}

// pytorch adds a run of transformers with the same weights, in bf16 only.
func (b bench) pytorch(ctx context.Context, p *figures.Part) error {
	if !strings.HasSuffix(p.Name, "bf16") {
		return nil
	}
	if b.torch == "" {
		p.Notes = append(p.Notes, "PyTorch was not measured: no Python with torch and transformers was named (TORCH_PYTHON).")
		return nil
	}
	prompts := "512"
	if prompts2048(p.Name) {
		prompts = "512,2048"
	}
	c := command{path: b.torch, args: []string{"tests/peer/torch_rates.py", b.model(p.Name), prompts, "32"}}
	// If torch was installed without its GPU libraries, scripts/golden.sh installed stubs of them.
	if stubs := filepath.Join(filepath.Dir(filepath.Dir(b.torch)), "stubs"); exists(stubs) {
		c.env = []string{"LD_LIBRARY_PATH=" + stubs}
	}
	r, err := c.run(ctx)
	if err != nil {
		return err
	}
	v, err := figures.ReadTorch(r.out)
	if err != nil {
		return err
	}
	r.command = append([]string{c.path}, c.args...)
	p.Runs = append(p.Runs, b.result(figures.Torch, r, v))
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// streams measures the CPU time of the server apart from the model while 64 clients stream.
func (b bench) streams(ctx context.Context, p figures.Part) (figures.Part, error) {
	r, err := execute(ctx, "go", "test", "-tags", "streams", "-count=1", "-timeout", "8m", "-v", "-run", "TestStreamingCost/default", "./appliance", "-args", "-streams", "64")
	if err != nil {
		// The test fails at a bound of its own; here only its figures matter.
		if v, e := figures.ReadStreams(r.out); e == nil {
			p.Runs = append(p.Runs, b.result(figures.Vapp, r, v))
			return p, nil
		}
		return p, err
	}
	v, err := figures.ReadStreams(r.out)
	p.Runs = append(p.Runs, b.result(figures.Vapp, r, v))
	return p, err
}
