package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the man pages of all commands to a folder",
		Long: `Man writes vapp.1 and a page for each command, such as vapp-plan.1, to DIR, which
it makes. The pages have no date, so that equal versions write equal bytes.`,
		Hidden: true, // for packages
		Args:   needArgs(1, 1, "one folder"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			root.InitDefaultHelpCmd()
			var failed error
			each(root, func(c *cobra.Command) {
				if c == root || c.IsAvailableCommand() {
					failed = errors.Join(failed, os.WriteFile(filepath.Join(args[0], manName(c)+".1"), []byte(manPage(c)), 0o644))
				}
			})
			return failed
		},
	}
}

// manName returns the name of a command's page: "vapp-bench-engine".
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the page of a command in the macros of man(7).
func manPage(c *cobra.Command) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	name := manName(c)
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"vapp\" \"vapp\"\n", roff(strings.ToUpper(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(name), roff(c.Short))
	if c.Runnable() && !c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".B %s\n", roff(c.UseLine()))
	} else {
		fmt.Fprintf(&b, ".B %s COMMAND\n", roff(c.CommandPath()))
	}
	b.WriteString(".SH DESCRIPTION\n")
	if c.Long != "" {
		manText(&b, c.Long)
	} else {
		b.WriteString(roff(c.Short) + ".\n")
	}
	if c.HasExample() {
		b.WriteString(".SH EXAMPLES\n")
		manText(&b, c.Example)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(manName(sub)), roff(sub.Short))
			}
		}
	}
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		b.WriteString(".SH OPTIONS\n")
		flags.VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	}
	if !strings.Contains(c.Long, "and 2 if") { // diff has codes of its own
		b.WriteString(".SH EXIT STATUS\n0: done. 1: a failure. 2: a wrong command line. 130: interrupted.\n")
	}
	if c.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(c.Parent())))
	}
	return b.String()
}

func manFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden || f.Deprecated != "" {
		return
	}
	b.WriteString(".TP\n")
	if f.Shorthand != "" {
		fmt.Fprintf(b, "\\fB\\-%s\\fR, ", roff(f.Shorthand))
	}
	value, usage := pflag.UnquoteUsage(f)
	fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.Name))
	if value != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
	}
	if zero := map[string]bool{"": true, "0": true, "false": true, "[]": true, "0s": true}; !zero[f.DefValue] && !strings.Contains(usage, "default") {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(b, "\n%s\n", roff(usage))
}

// manText writes a help text: paragraphs are filled, indented lines stay lines.
func manText(b *strings.Builder, text string) {
	literal := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		indented := strings.HasPrefix(line, " ")
		switch {
		case line == "":
			if literal {
				b.WriteString(".fi\n.RE\n")
				literal = false
			}
			b.WriteString(".PP\n")
			continue
		case indented && !literal:
			b.WriteString(".RS 4\n.nf\n")
		case !indented && literal:
			b.WriteString(".fi\n.RE\n")
		}
		if literal = indented; literal {
			line = strings.TrimPrefix(line, "  ")
		}
		b.WriteString(roff(line) + "\n")
	}
	if literal {
		b.WriteString(".fi\n.RE\n")
	}
}

// roff escapes a text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
