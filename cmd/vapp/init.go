package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"vapp.dev/schema"
)

func newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Make a folder of profiles that plain `cue vet` can check too",
		Long: `Init writes cue.mod with a vendored copy of the schema, and a first profile.
Existing files are kept, except the vendored schema, which is updated.`,
		Args: needArgs(1, 1, "one folder"),
		RunE: func(c *cobra.Command, args []string) error {
			wrote, err := schema.Init(args[0])
			for _, f := range wrote {
				fmt.Fprintln(c.OutOrStdout(), filepath.Join(args[0], f))
			}
			if err == nil && len(wrote) == 0 {
				fmt.Fprintf(c.OutOrStdout(), "%s is up to date\n", args[0])
			}
			return err
		},
	}
}
