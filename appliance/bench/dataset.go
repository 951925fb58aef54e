package bench

import (
	"context"

	"vapp.dev/appliance/bench/workload"
)

// Dataset says what prompts are made of.
type Dataset struct {
	Name string
	// Input and Output override the lengths of any dataset; 0: its own.
	Input, Output int
	NoOversample  bool
	Random        workload.Random
}

// Datasets names them.
const Datasets = "random"

func (d *Dataset) check() error {
	if d.Name != "random" {
		return refuse("--dataset-name %q: there are %s", d.Name, Datasets)
	}
	return nil
}

// make draws the requests.
func (d *Dataset) make(ctx context.Context, m workload.Maker) ([]workload.Request, error) {
	r := d.Random
	if d.Input > 0 {
		r.Input = d.Input
	}
	if d.Output > 0 {
		r.Output = d.Output
	}
	return m.Random(ctx, r)
}
