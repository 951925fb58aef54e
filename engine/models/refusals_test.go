package models

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// refusal is a published config, altered, and a build that is refused with want in the error.
type refusal struct {
	name   string
	change map[string]any
	build  Build
	want   string
}

// checkRefusals builds each and checks that the error is an *UnsupportedError.
func checkRefusals(t *testing.T, list []refusal) {
	t.Helper()
	for _, c := range list {
		_, err := buildModel(alterConfig(t, c.name, c.change), c.build)
		var refused *UnsupportedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v %+v: %v, want %q", c.name, c.change, c.build, err, c.want)
		}
	}
}

// checkQuantRefused checks that a quantization_config is refused in one short line.
func checkQuantRefused(t *testing.T, config json.RawMessage, want string) {
	t.Helper()
	_, err := quantOf(checkpoint.Config{QuantizationConfig: config})
	var refused *UnsupportedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
		t.Errorf("%.200s: %v, want %s", config, err, want)
	}
}

// rankWeights returns the weights of rank 1 of 2 of a checkpoint of testdata, by name.
func rankWeights(t *testing.T, name string) map[string]backend.WeightSpec {
	t.Helper()
	m, err := New(openTestdata(t, name), Build{Shard: backend.Shard{Rank: 1, World: 2}})
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]backend.WeightSpec{}
	for _, w := range m.Weights() {
		specs[w.Name] = w
	}
	return specs
}
