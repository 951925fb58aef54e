package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

func newPlan() *cobra.Command {
	var asJSON bool
	var memory string
	c := &cobra.Command{
		Use:   "plan PROFILE",
		Short: "Say what a server will hold in memory and how many requests it carries",
		Long: `Plan says, from the profile, the headers of the model's files and the facts of
this machine alone, what "vapp up" will hold in memory, byte for byte, and how
many requests it carries. Nothing is loaded. Where the weights are absent it
plans from the config, or from the embedded catalogue.`,
		Args: needArgs(1, 1, "one profile"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := machineOf(c, memory)
			if err != nil {
				return err
			}
			p, err := appliance.Prepare(args[0], m)
			if err != nil {
				return err
			}
			defer p.Close()
			if asJSON {
				return p.Plan.JSON(c.OutOrStdout())
			}
			return p.Plan.Text(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the plan as JSON")
	memoryFlag(c, &memory)
	return c
}

func memoryFlag(c *cobra.Command, memory *string) {
	c.Flags().StringVar(memory, "memory", "", "plan for a machine with this much memory, such as 64GiB")
}

// machineOf is this machine, with the memory that --memory gives it.
func machineOf(c *cobra.Command, memory string) (appliance.Machine, error) {
	m := appliance.Machine{Backends: machines()}
	if memory == "" {
		return m, nil
	}
	n, err := schema.ParseBytes(memory)
	if err != nil {
		return m, &usageError{fmt.Errorf("--memory %w", err), c.CommandPath()}
	}
	if n <= 0 {
		return m, &usageError{fmt.Errorf("--memory %q: no memory to plan for; give a size such as 64GiB", memory), c.CommandPath()}
	}
	m.Facts = func(f backend.Facts) backend.Facts {
		f.TotalBytes, f.FreeBytes, f.Measured, f.MemoryLimit = int64(n), 0, false, "flag"
		return f
	}
	return m, nil
}
