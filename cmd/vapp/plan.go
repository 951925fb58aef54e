package main

import (
	"github.com/spf13/cobra"

	"vapp.dev/appliance"
)

func newPlan() *cobra.Command {
	var asJSON bool
	var target target
	c := &cobra.Command{
		Use:   "plan PROFILE",
		Short: "Say what a server will hold in memory and how many requests it carries",
		Long: `Plan says, from the profile, the headers of the model's files and the facts of
this machine alone, what "vapp up" will hold in memory, byte for byte, and how
many requests it carries. Nothing is loaded. Where the weights are absent it
plans from the config, or from the embedded catalogue (vapp models); --config
plans any config.json of a family that vapp knows. --gpu and --memory plan for a
machine that is not here (vapp devices).`,
		Args: needArgs(1, 1, "one profile"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := target.machine(c)
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
	target.flags(c)
	target.configFlag(c)
	return c
}
