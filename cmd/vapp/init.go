package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/starter"
	"vapp.dev/schema"
)

func newInit() *cobra.Command {
	var model, backend string
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a folder of profiles that plain `cue vet` can check too",
		Long: `Init writes cue.mod with a vendored copy of the schema, and a first profile.
Existing files are kept, except the vendored schema, which is updated.

The model of the first profile needs no account. With --model the profile is made
for that model, with figures for this machine and the reason of each, and its file
has the model's name: a .gguf file, a folder with a config.json, org/name of the
Hugging Face hub (org/name:file.gguf, either with @revision), or a name of the
catalogue ("vapp models"). A hub model that is neither in the cache nor in the
catalogue is fetched first by "vapp pull".`,
		Args: needArgs(1, 1, "one folder"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, file := args[0], schema.FirstFile
			if dir == "" {
				return &usageError{errors.New("init: the folder is empty text; write . for this one"), c.CommandPath()}
			}
			if st, err := os.Stat(dir); err == nil && !st.IsDir() {
				return fmt.Errorf("%s is a file; init takes a folder", dir)
			}
			if model == "" {
				wrote, err := schema.Init(dir)
				return printInit(c, dir, file, wrote, err)
			}
			m, err := withBackend(c, backend)
			if err != nil {
				return err
			}
			s, err := starter.Find(model)
			if err != nil {
				return &usageError{fmt.Errorf("--model: %w", err), c.CommandPath()}
			}
			if s.Kind == starter.ProfileFile {
				return &usageError{fmt.Errorf("--model: %q is a profile; copy it into the folder", model), c.CommandPath()}
			}
			text, err := m.MakeProfile(s, appliance.ForFile)
			if err != nil {
				return err
			}
			file = s.ProfileName() + ".cue"
			wrote, err := schema.InitProfile(dir, file, text)
			return printInit(c, dir, file, wrote, err)
		},
	}
	c.Flags().StringVar(&model, "model", "", "make the profile for this model")
	backendFlag(c, &backend)
	return c
}

// printInit prints the files that were written, and what to type next where the profile is one.
func printInit(c *cobra.Command, dir, profile string, wrote []string, err error) error {
	w := c.OutOrStdout()
	for _, f := range wrote {
		fmt.Fprintln(w, filepath.Join(dir, f))
	}
	at := word(filepath.Join(dir, profile))
	switch {
	case err != nil:
		return err
	case slices.Contains(wrote, profile):
		fmt.Fprintf(w, "\nnext:\n  vapp plan %s\n  vapp run %s --prompt \"What is the capital of France?\"\n  vapp up %s\n", at, at, at)
	case profile != schema.FirstFile:
		fmt.Fprintf(w, "%s exists and is kept; remove it to make it again\n", at)
	case len(wrote) == 0:
		fmt.Fprintf(w, "%s is up to date\n", dir)
	}
	return nil
}

// word returns text as one word of a shell.
func word(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+=") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
