package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/schema"
)

func newVet() *cobra.Command {
	return &cobra.Command{
		Use:   "vet FILE|DIR...",
		Short: "Check profiles: every error with its place, what is allowed, and the nearest name",
		Long: `Vet checks profiles, one by one, and of a folder every profile in it and below.
Each error is one line: file:line:col, the field, what is wrong, what is
allowed, and the nearest name for a typo. Without errors it says nothing and
ends with code 0, else with 1.

Every policy.cue in a profile's folder, and in those above it up to the module's
root (cue.mod), constrains the profile; a breach is told with both places. To
vet a policy.cue is to vet it and every profile that it binds.

It looks at profiles alone: "vapp plan" looks at the model too.`,
		Args: needArgs(1, -1, "files or folders"),
		RunE: func(c *cobra.Command, args []string) error {
			files, err := profileFiles(args)
			if err != nil {
				return err
			}
			said := map[string]bool{} // a broken policy is told once, not for each profile
			for _, f := range files {
				if filepath.Base(f) == schema.PolicyFile {
					err = schema.LoadPolicy(f)
				} else {
					err = vetProfile(f)
				}
				for _, line := range problemLines(err) {
					if !said[line] {
						said[line] = true
						fmt.Fprintln(c.ErrOrStderr(), line)
					}
				}
			}
			if len(said) > 0 {
				return exitError(1)
			}
			return nil
		},
	}
}

// vetProfile says what is wrong with a profile, names of parsers included.
func vetProfile(file string) error {
	p, err := schema.Load(file)
	if err != nil {
		return err
	}
	return appliance.CheckParsers(p)
}

// problemLines are the lines of an error, none where there is none.
func problemLines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// unreadable says why a path cannot be read, without the name of the call.
func unreadable(path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// profileFiles lists the profiles that args name: a folder stands for those in
// it and below, a policy for itself and those of its folder.
func profileFiles(args []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	add := func(files ...string) {
		for _, f := range files {
			if at := filepath.Clean(f); !seen[at] {
				seen[at] = true
				out = append(out, f)
			}
		}
	}
	for _, a := range args {
		st, err := os.Stat(a)
		if err != nil {
			return nil, unreadable(a, err)
		}
		dir := a
		if !st.IsDir() {
			add(a)
			if filepath.Base(a) != schema.PolicyFile {
				continue
			}
			dir = filepath.Dir(a)
		}
		below, err := schema.Below(dir)
		if err != nil {
			return nil, err
		}
		if st.IsDir() && len(below) == 0 {
			return nil, fmt.Errorf("%s: no profiles (*.cue) in this folder", a)
		}
		add(below...)
	}
	return out, nil
}
