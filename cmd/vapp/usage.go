package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vapp.dev/foreign"
	"vapp.dev/nearest"
)

// helpWidth is the width of flags in help that no terminal shows, in columns.
const helpWidth = 100

// wrapFlags makes the help of root and its commands break the lines of flags at the terminal's width.
func wrapFlags(root *cobra.Command) {
	cobra.AddTemplateFunc("flagLines", flagLines)
	t := root.UsageTemplate()
	for _, set := range []string{"LocalFlags", "InheritedFlags"} {
		t = strings.Replace(t, "."+set+".FlagUsages", "(flagLines ."+set+")", 1)
	}
	root.SetUsageTemplate(t)
}

// flagLines returns a line or more for each flag, for the standard output: cobra renders help in
// memory first, so a command's writer is no terminal here.
func flagLines(flags *pflag.FlagSet) string {
	width, _, ok := terminal(os.Stdout)
	if !ok {
		width = helpWidth
	}
	return flags.FlagUsagesWrapped(width)
}

// needArgs checks the number of arguments as cobra's RangeArgs does, with a usageError; max < 0: no
// upper bound.
func needArgs(min, max int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= min && (max < 0 || len(args) <= max) {
			return nil
		}
		given := fmt.Sprintf("%d were given", len(args))
		switch len(args) {
		case 0:
			given = "none was given"
		case 1:
			given = fmt.Sprintf("%q was given", args[0])
		}
		name := strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
		return &usageError{fmt.Errorf("%s takes %s; %s", name, what, given), c.CommandPath()}
	}
}

// onlyCommands makes c a group of commands. Without arguments it prints its help; an unknown word
// is a usageError with suggestions.
func onlyCommands(c *cobra.Command) {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(c, args[0])
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	// A group is run with a command, so its usage does not show the bare name.
	c.SetUsageTemplate(strings.Replace(c.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
}

func unknownCommand(c *cobra.Command, word string) error {
	err := fmt.Errorf("unknown command %q", word)
	c.SuggestionsMinimumDistance = 2
	command, remark, known := foreign.Command(word)
	if known && c == c.Root() {
		if command != "" {
			remark = "use vapp " + command + ": " + remark
		}
		err = fmt.Errorf("%w; %s", err, remark)
	} else if near := c.SuggestionsFor(word); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	} else if words, _ := foreign.Commands(); c == c.Root() {
		if meant := nearest.Best(word, words); meant != "" {
			if command, remark, _ := foreign.Command(meant); command != "" {
				err = fmt.Errorf("%w; for %s use vapp %s: %s", err, meant, command, remark)
			}
		}
	}
	return &usageError{err, c.CommandPath()}
}

// flagError returns the error of an unknown flag with what vapp has in its place.
func flagError(c *cobra.Command, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: ")
	if _, short, ok := strings.Cut(err.Error(), "unknown shorthand flag: "); ok {
		_, name, unknown = strings.Cut(short, " in ") // 'n' in -ngl
	}
	if unknown {
		h, known := foreign.Find(name)
		switch own := strings.ReplaceAll(strings.ToLower(strings.TrimLeft(name, "-")), "_", "-"); {
		case len(own) > 1 && c.Flags().Lookup(own) != nil:
			err = fmt.Errorf("%w; did you mean --%s?", err, own)
		case known && strings.HasPrefix(h.Field, "serve.") && (c.Name() == "run" || c.Name() == "chat"):
			err = fmt.Errorf("%w; %s starts no server for others: vapp up has it", err, c.CommandPath())
		case known && h.Field == "serve.apiKeys":
			err = fmt.Errorf("%w; did you mean --api-key?", err)
		case known:
			err = fmt.Errorf("%w; %s", err, h.Says())
			if h.Field != "" && c.Flags().Lookup("set") != nil {
				err = fmt.Errorf("%w, or give --set %s=VALUE", err, h.Field)
			}
		case len(own) > 1:
			if near := nearest.Best(own, flagNames(c)); near != "" {
				err = fmt.Errorf("%w; did you mean --%s?", err, near)
			}
		}
	}
	return &usageError{err, c.CommandPath()}
}

// flagNames returns the flags of c that its help shows.
func flagNames(c *cobra.Command) (names []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// least are the minimums of the counting flags of bench engine.
var least = map[string]int{"prompt-len": 1, "output-len": 2, "streams": 1, "repeat": 1, "layers": 0}

// checkMinimums refuses smaller values.
func checkMinimums(c *cobra.Command, _ []string) error {
	if c.Name() != "engine" {
		return nil
	}
	for name, min := range least {
		if n, err := c.Flags().GetInt(name); err == nil && n < min {
			return &usageError{fmt.Errorf("--%s %d: give %d or more", name, n, min), c.CommandPath()}
		}
	}
	return nil
}

// newHelp is cobra's help command with an error for unknown commands.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about any command",
		ValidArgsFunction: completeTopics,
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return &usageError{err, c.Root().CommandPath()}
			case len(rest) > 0:
				return unknownCommand(found, rest[0])
			}
			// Execute adds these only to the command that it runs.
			found.InitDefaultHelpFlag()
			found.InitDefaultVersionFlag()
			return found.Help()
		},
	}
}
