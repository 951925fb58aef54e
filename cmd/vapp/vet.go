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
		Short: "Check profiles: every error with its position, allowed values, and suggestions",
		Long: `Vet checks profiles; for a folder, every profile in it and below. Each error is
one line: file:line:col, the field, the error, the allowed values, and a
suggestion for a typo. Without errors it prints nothing and the exit code is 0,
otherwise it is 1.

Every policy.cue in a profile's folder, and in the folders above it up to the
module's root (cue.mod), constrains the profile; a violation is reported with both
positions. Vet of a policy.cue checks it and every profile that it constrains.

Vet checks the names of parsers and of the target's device. It looks at the model
only for multimodal: limits and sizes of images against its tower and its processor,
where its headers are on this machine or in the catalogue; for all else "vapp plan"
does. A profile with require.itl or require.ttft is planned,
because its predicted speed has to meet them.`,
		Args: needArgs(1, -1, "files or folders"),
		RunE: func(c *cobra.Command, args []string) error {
			files, err := profileFiles(args)
			if err != nil {
				return err
			}
			said := map[string]bool{} // an error of a policy is printed once, not for each profile
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

// vetProfile returns the errors of a profile, including unknown parsers and devices.
func vetProfile(file string) error {
	p, err := schema.Load(file)
	if err != nil {
		return err
	}
	if err := errors.Join(appliance.CheckTarget(p), appliance.CheckParsers(p), appliance.CheckAdapters(p)); err != nil {
		return err
	}
	if err := appliance.CheckMedia(p, localMachine()); err != nil {
		return err
	}
	return vetLatencies(p)
}

// vetLatencies plans a profile that requires latencies, for its target or for this machine.
func vetLatencies(p *schema.Profile) error {
	if p.Require == nil || p.Require.ITL == nil && p.Require.TTFT == nil {
		return nil
	}
	m := localMachine()
	m.UseTarget = true
	planned, err := appliance.PrepareProfile(p, m)
	if err != nil {
		return err
	}
	return planned.Close()
}

// problemLines splits an error into lines; none where err is nil.
func problemLines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// unreadable returns err with the path in front and without the name of the system call.
func unreadable(path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// profileFiles lists the profiles that args name: a folder means the profiles in it and below, a
// policy means itself and the profiles of its folder.
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
			if _, err := schema.Load(a); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("%s: no profiles (*.cue) in this folder", a)
		}
		add(below...)
	}
	return out, nil
}
