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
		Short: "Make a folder of profiles that plain `cue vet` understands too",
		Long: `Init writes cue.mod with the schema vendored, and a first profile. Files that are
there stay as they are; the vendored schema is brought up to date.`,
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
