package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/starter"
	"vapp.dev/schema"
)

// argHelp describes the argument of the commands that take a profile or a model.
const argHelp = `MODEL is a .gguf file, a folder with a config.json, org/name of the Hugging Face hub
(org/name:file.gguf, either with @revision), or a name of the catalogue ("vapp
models"). A profile is made for it in memory, with the reason of each default;
--print-profile prints it. Policies of the working directory apply to it.`

// argUse is what a command needs of its argument.
type argUse struct {
	scope appliance.Scope
	// fetch downloads a model of the hub for which no profile can be made otherwise; ctx stops it.
	fetch, offline bool
	ctx            context.Context
}

// profileFlags adds the flags of commands that take a profile or a model.
// serve: the command starts or plans a server.
func profileFlags(c *cobra.Command, serve bool) {
	c.Flags().Bool("print-profile", false, "print the profile and exit")
	setFlags(c, serve)
}

// profileArg resolves the argument of a command: a profile, or a model, for which it makes a
// profile. It returns the path and the machine for appliance.Prepare, New and Obtain, with what
// the flags of profileFlags set.
func profileArg(c *cobra.Command, arg string, m appliance.Machine, use argUse) (path string, _ appliance.Machine, err error) {
	if m.Set, err = overrides(c); err != nil {
		return "", m, err
	}
	s, err := starter.Find(arg)
	if err != nil {
		return "", m, err
	}
	printed, _ := c.Flags().GetBool("print-profile") // false where a command lacks the flag
	path = arg
	if s.Kind != starter.ProfileFile {
		for _, o := range m.Set {
			if schema.Overlap(o.Path, "model.source") || schema.Overlap(o.Path, "model.revision") {
				return "", m, &usageError{fmt.Errorf("%q and %s both name the model; give one of them", arg, o.From), c.CommandPath()}
			}
		}
		path = appliance.MadeName(s)
		if m.Text, err = m.MakeProfile(s, use.scope); appliance.Unknown(err) && use.fetch {
			client := m.Hub
			client.Offline = client.Offline || use.offline
			m.Text, err = m.Fetch(use.ctx, s, hubClient(client), !printed)
		}
		if err != nil {
			return "", m, err
		}
	}
	if printed {
		return "", m, printProfile(c, path, m)
	}
	return path, m, nil
}

// printProfile prints the text of the profile and ends the command.
func printProfile(c *cobra.Command, path string, m appliance.Machine) error {
	for _, o := range m.Set {
		if schema.Secret(o.Path) {
			return &usageError{fmt.Errorf("--print-profile: %s is never printed; leave it out, and write {env: \"NAME\"} or {file: \"path\"} into the profile", o.From), c.CommandPath()}
		}
	}
	text, err := m.PrintProfile(path)
	if err != nil {
		return err
	}
	if _, err := c.OutOrStdout().Write(text); err != nil {
		return err
	}
	return exitError(0)
}
