package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/schema"
)

func newVet() *cobra.Command {
	return &cobra.Command{
		Use:   "vet FILE|DIR...",
		Short: "Check profiles: every error with its place, what is allowed, and the nearest name",
		Long: `Vet checks profiles, one by one, and of a folder every .cue file. Each error is
one line: file:line:col, the field, what is wrong, what is allowed, and the
nearest name for a typo. Without errors it says nothing and ends with code 0,
else with 1. It looks at profiles alone: "vapp plan" looks at the model too.`,
		Args: needArgs(1, -1, "files or folders"),
		RunE: func(c *cobra.Command, args []string) error {
			files, err := profileFiles(args)
			if err != nil {
				return err
			}
			bad := 0
			for _, f := range files {
				if _, err := schema.Load(f); err != nil {
					bad++
					fmt.Fprintln(c.ErrOrStderr(), err)
				}
			}
			if bad > 0 {
				return exitError(1)
			}
			return nil
		},
	}
}

// unreadable says why a path cannot be read, without the name of the call.
func unreadable(path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// profileFiles lists the .cue files that args name; folders are walked, but
// not their cue.mod.
func profileFiles(args []string) ([]string, error) {
	var out []string
	for _, a := range args {
		st, err := os.Stat(a)
		if err != nil {
			return nil, unreadable(a, err)
		}
		if !st.IsDir() {
			out = append(out, a)
			continue
		}
		n := len(out)
		err = filepath.WalkDir(a, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "cue.mod":
				return fs.SkipDir
			case !d.IsDir() && strings.HasSuffix(path, ".cue"):
				out = append(out, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(out) == n {
			return nil, fmt.Errorf("%s: no profiles (*.cue) in this folder", a)
		}
	}
	return out, nil
}
