package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// target is the machine and model to plan for, by the flags of a command.
type target struct {
	gpu, memory, config, backend string
	here                         bool // this machine, not the profile's target
}

// flags adds --gpu and --memory.
func (t *target) flags(c *cobra.Command) {
	c.Flags().StringVar(&t.gpu, "gpu", "", "plan for a device of the catalogue (vapp devices), such as a100-80g, h200+cublaslt=13.0 or cpu-16c-64g; default: the profile's target, else this machine")
	c.Flags().StringVar(&t.memory, "memory", "", "plan for a machine with this much memory, such as 64GiB")
}

// configFlag adds --config.
func (t *target) configFlag(c *cobra.Command) {
	c.Flags().StringVar(&t.config, "config", "", "plan the model of this config.json, or of the config.json in this folder, in place of model.source")
}

// backendFlag adds --backend, for commands that plan or start one profile.
func backendFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "backend", "", "compute with this backend in place of the profile's: auto, cuda, cpu or ref")
}

// withBackend returns this machine with the backend of --backend.
func withBackend(c *cobra.Command, backend string) (appliance.Machine, error) {
	m := localMachine()
	names := []string{"auto"}
	for _, op := range m.Backends {
		names = append(names, op.Name())
	}
	if backend != "" && !slices.Contains(names, backend) {
		return m, &usageError{fmt.Errorf("--backend: no backend %q; there are %s", backend, strings.Join(names, ", ")), c.CommandPath()}
	}
	m.Backend = backend
	return m, nil
}

// machine returns this machine, or the one that the flags name. Without flags it plans for the
// target of the profile.
func (t *target) machine(c *cobra.Command) (appliance.Machine, error) {
	m, err := withBackend(c, t.backend)
	if err != nil {
		return m, err
	}
	m.Config = t.config
	return t.aim(c, m)
}

// aim returns m planned for the machine that the flags name.
func (t *target) aim(c *cobra.Command, m appliance.Machine) (appliance.Machine, error) {
	m.UseTarget = !t.here && !c.Flags().Changed("gpu") && !c.Flags().Changed("memory")
	if t.gpu != "" {
		d, err := devices.Find(t.gpu)
		var unknown *devices.UnknownError
		if errors.As(err, &unknown) {
			return m, &usageError{fmt.Errorf("--gpu: %w", err), c.CommandPath()}
		} else if err != nil {
			return m, err
		}
		m.Device = &d
	}
	if t.memory == "" {
		return m, nil
	}
	n, err := schema.ParseBytes(t.memory)
	if err != nil {
		return m, &usageError{fmt.Errorf("--memory %w", err), c.CommandPath()}
	}
	if n <= 0 {
		return m, &usageError{fmt.Errorf("--memory %q: no memory to plan for; give a size such as 64GiB", t.memory), c.CommandPath()}
	}
	m.Memory = int64(n)
	return m, nil
}
