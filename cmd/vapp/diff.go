package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

func newDiff() *cobra.Command {
	var exitCode bool
	var target target
	c := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say what changes between two profiles: fields, reload classes, bytes, capacity",
		Long: `Diff compares two profiles as a running server would on reload: every field that
differs with its class (live, drain, structural), and what the plan holds and
carries before and after. Nothing is loaded.`,
		Args: needArgs(2, 2, "two profiles"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := target.machine(c)
			if err != nil {
				return err
			}
			var both [2]*appliance.Prepared
			for i, a := range args {
				p, err := appliance.Prepare(a, m)
				if err != nil {
					return err
				}
				defer p.Close()
				both[i] = p
			}
			changes := schema.Diff(both[0].Profile, both[1].Profile)
			if len(changes) == 0 {
				return nil
			}
			w := c.OutOrStdout()
			fmt.Fprintf(w, "%s\n", changes)
			if d := plan.Diff(both[0].Plan, both[1].Plan); !d.Same() {
				fmt.Fprintf(w, "\n%s", d)
			}
			fmt.Fprintf(w, "\nto a running server this change is %s\n", changes.Class())
			if exitCode {
				return exitError(1)
			}
			return nil
		},
	}
	target.flags(c)
	c.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 where the profiles differ")
	return c
}
