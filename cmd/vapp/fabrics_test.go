package main

import (
	"strings"
	"testing"
)

// TestPickGPU: each rank of a host sees one GPU, unless its launcher has picked.
func TestPickGPU(t *testing.T) {
	for name, c := range map[string]struct{ env, want string }{
		"no launcher":      {"", ""},
		"one here":         {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1", ""},
		"two here":         {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2", "1"},
		"of those visible": {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=4,6", "6"},
		"picked":           {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=6", "6"},
		"started by up":    {"VAPP_RANK=1 VAPP_RANKS=2 VAPP_RANKS_LEADER=a:1 CUDA_VISIBLE_DEVICES=3", "3"},
	} {
		env := map[string]string{}
		for _, f := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		if err := pickGPU(func(k string) string { return env[k] }, func(k, v string) error { env[k] = v; return nil }); err != nil {
			t.Error(err)
		}
		if got := env[visibleGPUs]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
