package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/tools/compat"
	"vapp.dev/tools/compat/released"
)

// compatAnswer returns what a vLLM release would log for the profile.
func compatAnswer(c *cobra.Command, p *appliance.Prepared, release string) (*answer, error) {
	r, err := compat.ParseRelease(release)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--compat: %w", err), c.CommandPath()}
	}
	report, err := released.Report(p, r)
	if err != nil {
		return nil, err
	}
	return &answer{fmt.Sprintf("what %s would log for this profile", r), fmt.Sprint(report), func(w io.Writer) error {
		return asJSON(w, map[string]any{"plan": p.Plan, "compat": report})
	}}, nil
}
