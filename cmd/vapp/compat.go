package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/compat"
)

// printCompat writes the plan and, beside it, what a vLLM release would log.
func printCompat(c *cobra.Command, p *appliance.Prepared, release string, asJSON bool) error {
	r, err := compat.ParseRelease(release)
	if err != nil {
		return &usageError{fmt.Errorf("--compat: %w", err), c.CommandPath()}
	}
	report, err := compat.ForProfile(p.Profile, p.Model.Config, p.Plan.Facts, r)
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(map[string]any{"plan": p.Plan, "compat": report})
	}
	if err := p.Plan.Text(w); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nwhat %s would log for this profile\n%s", r, report)
	return err
}
