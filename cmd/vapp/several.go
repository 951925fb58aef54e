package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/starter"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/schema"
)

// severalHelp describes several arguments of up and plan.
const severalHelp = `Several profiles or models, or a folder with several profiles, are one server: a
request's model chooses among them, and their memory is planned together
(docs/guide/several-models.md). Flags that replace values of the profile apply to
each.`

// expand replaces a folder with several profiles by its profiles.
func expand(args []string) (out []string, err error) {
	for _, arg := range args {
		list, err := profilesIn(arg)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// profilesIn returns the profiles of a folder that has several, and else the argument.
func profilesIn(arg string) ([]string, error) {
	st, err := os.Stat(arg)
	if err != nil || !st.IsDir() {
		return []string{arg}, nil // what is wrong with it is said later
	}
	if s, err := starter.Find(arg); err != nil || s.Kind != starter.ProfileFile {
		return []string{arg}, nil
	}
	entries, err := os.ReadDir(arg)
	if err != nil {
		return nil, unreadable(arg, err)
	}
	var list []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && name[0] != '.' && strings.HasSuffix(name, ".cue") && name != schema.PolicyFile {
			list = append(list, filepath.Join(arg, name))
		}
	}
	if len(list) < 2 {
		return []string{arg}, nil
	}
	return list, nil
}

// refuseFlags refuses flags that are for one model.
func refuseFlags(c *cobra.Command, names ...string) error {
	for _, name := range names {
		if c.Flags().Changed(name) {
			return &usageError{fmt.Errorf("--%s is for one profile; give one, or leave it out", name), c.CommandPath()}
		}
	}
	return nil
}

// serveSeveral is serve for several models.
func serveSeveral(c *cobra.Command, args []string, machine appliance.Machine, locked, offline bool, say *startLog) error {
	if err := refuseFlags(c, "print-profile", "nodes", "node-rank", "leader"); err != nil {
		return err
	}
	all := make([]appliance.Config, len(args))
	stopped, err := untilSignal(say, func(ctx context.Context) (err error) {
		use := argUse{fetch: !locked, offline: offline, ctx: ctx}
		for i, arg := range args {
			at := &all[i]
			if at.Profile, at.Machine, err = profileArg(c, arg, machine, use); err != nil {
				return err
			}
			if i == 0 {
				say.use(logFormat(at.Profile, at.Machine))
				if driver.Built {
					say.line(driverLine())
				}
			}
			if locked {
				err = lockable(c, arg, at.Machine)
			} else {
				err = obtain(ctx, at.Profile, at.Machine, offline, say.hubClient)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if stopped || err != nil {
		return err
	}
	return serveAll(c, all, locked, say, func() (runner, error) { return appliance.NewFleet(all) })
}

// planSeveral prints the joint plan of several models.
func planSeveral(c *cobra.Command, args []string, machine appliance.Machine, show planFlags) error {
	if err := refuseFlags(c, "print-profile", "explain", "compat", "speed", "html", "config"); err != nil {
		return err
	}
	paths, machines := make([]string, len(args)), make([]appliance.Machine, len(args))
	for i, arg := range args {
		var err error
		if paths[i], machines[i], err = profileArg(c, arg, machine, argUse{}); err != nil {
			return err
		}
	}
	made, j, err := appliance.PrepareTogether(paths, machines)
	if err != nil {
		return show.refused(c, err)
	}
	defer func() {
		for _, p := range made {
			p.Close()
		}
	}()
	if show.whyNot == "" {
		return show.printJoint(c, j)
	}
	goal, err := plan.ParseGoal(show.whyNot)
	if err != nil {
		return &usageError{fmt.Errorf("--why-not: %w", err), c.CommandPath()}
	}
	if show.json {
		return plan.AnswersJSON(c.OutOrStdout(), j.WhyNot(goal))
	}
	return plan.AnswersText(c.OutOrStdout(), j.WhyNot(goal))
}
