package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vapp.dev/appliance"
	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/plan/picture"
)

// planFlags select the output of plan.
type planFlags struct {
	json                  bool
	html, whyNot, explain string
	compat                string
}

func newPlan() *cobra.Command {
	var show planFlags
	var target target
	c := &cobra.Command{
		Use:   "plan PROFILE|MODEL",
		Short: "Show the memory of a server and how many requests fit",
		Long: `Plan computes the memory of "vapp up", byte for byte, and how many requests fit,
from the profile, the headers of the model's files and the properties of this
machine. Nothing is loaded. Without weights it plans from the config, or from the
embedded catalogue (vapp models); --config plans any config.json of a supported
model family. --gpu and --memory plan for another machine (vapp devices).

On a terminal the plan begins with a picture of the memory (without colors if
NO_COLOR is set); --html writes it as a page. --why-not 16x32K shows what would
make 16 sequences of 32K tokens fit, --explain ITEM how a figure was computed (kv,
weights.attention, concurrency, …), --compat RELEASE what vLLM would log.

` + argHelp,
		Args: needArgs(1, 1, "one profile or model"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := target.machine(c)
			if err != nil {
				return err
			}
			path, m, err := profileArg(c, args[0], m, argUse{})
			if err != nil {
				return err
			}
			if show.whyNot != "" {
				return whyNot(c, path, m, show)
			}
			p, err := appliance.Prepare(path, m)
			if err != nil {
				return err
			}
			defer p.Close()
			if show.compat != "" {
				return printCompat(c, p, show.compat, show.json)
			}
			return show.print(c, p.Plan)
		},
	}
	c.Flags().BoolVar(&show.json, "json", false, "print JSON (docs/plan-json.md)")
	c.Flags().StringVar(&show.html, "html", "", "write the plan as one self-contained page to this file")
	c.Flags().StringVar(&show.whyNot, "why-not", "", "show what would make this many sequences of a length fit, such as 16x32K")
	c.Flags().StringVar(&show.explain, "explain", "", "show how an item of the plan was computed, such as kv or weights.attention")
	c.Flags().StringVar(&show.compat, "compat", "", "also print what a vLLM release would log: vllm-0.7, vllm-2025-08, vllm-0.17, vllm-0.19")
	c.MarkFlagsMutuallyExclusive("html", "why-not", "explain", "compat")
	target.flags(c)
	target.configFlag(c)
	backendFlag(c, &target.backend)
	profileFlags(c, true)
	return c
}

// print prints the plan in the selected form.
func (f planFlags) print(c *cobra.Command, p *plan.Plan) error {
	w := c.OutOrStdout()
	switch {
	case f.explain != "":
		e, err := p.Explain(f.explain)
		if err != nil {
			return &usageError{fmt.Errorf("--explain: %w", err), c.CommandPath()}
		}
		if f.json {
			return e.JSON(w)
		}
		_, err = io.WriteString(w, e.String())
		return err
	case f.html != "":
		var page bytes.Buffer
		if err := picture.HTML(&page, p); err != nil {
			return err
		}
		return os.WriteFile(f.html, page.Bytes(), 0o644)
	case f.json:
		return p.JSON(w)
	}
	if width, colour, ok := terminal(w); ok {
		if _, err := io.WriteString(w, picture.Terminal(p, width, colour)+"\n"); err != nil {
			return err
		}
	}
	return p.Text(w)
}

// terminal returns the width of a terminal and whether colors may be used; ok is false where w is
// no terminal.
func terminal(w io.Writer) (width int, colour, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 80
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", true
}

// whyNot prints the answer to --why-not.
func whyNot(c *cobra.Command, profile string, m appliance.Machine, show planFlags) error {
	seqs, tokens, err := plan.ParseGoal(show.whyNot)
	if err != nil {
		return &usageError{fmt.Errorf("--why-not: %w", err), c.CommandPath()}
	}
	a, err := appliance.WhyNot(profile, m, seqs, tokens)
	if err != nil {
		return err
	}
	if show.json {
		return a.JSON(c.OutOrStdout())
	}
	_, err = io.WriteString(c.OutOrStdout(), a.String())
	return err
}
