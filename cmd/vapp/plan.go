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

// planFlags are what plan prints in place of the plan.
type planFlags struct {
	json                  bool
	html, whyNot, explain string
	compat                string
}

func newPlan() *cobra.Command {
	var show planFlags
	var target target
	c := &cobra.Command{
		Use:   "plan PROFILE",
		Short: "Say what a server will hold in memory and how many requests it carries",
		Long: `Plan says, from the profile, the headers of the model's files and the facts of
this machine alone, what "vapp up" will hold in memory, byte for byte, and how
many requests it carries. Nothing is loaded. Where the weights are absent it
plans from the config, or from the embedded catalogue (vapp models); --config
plans any config.json of a family that vapp knows. --gpu and --memory plan for a
machine that is not here (vapp devices).

On a terminal the plan begins with a picture of the memory (plain with NO_COLOR);
--html writes it as a page. --why-not 16x32K says what would make 16 sequences of
32K tokens fit, --explain ITEM how a figure came about (kv, weights.attention,
concurrency, …), --compat RELEASE what vLLM would have logged.`,
		Args: needArgs(1, 1, "one profile"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := target.machine(c)
			if err != nil {
				return err
			}
			if show.whyNot != "" {
				return whyNot(c, args[0], m, show)
			}
			p, err := appliance.Prepare(args[0], m)
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
	c.Flags().StringVar(&show.whyNot, "why-not", "", "say what would make so many sequences of a length fit, such as 16x32K")
	c.Flags().StringVar(&show.explain, "explain", "", "say how an item of the plan came about, such as kv or weights.attention")
	c.Flags().StringVar(&show.compat, "compat", "", "print beside it what a vLLM release would log: vllm-0.7, vllm-2025-08, vllm-0.17, vllm-0.19")
	c.MarkFlagsMutuallyExclusive("html", "why-not", "explain", "compat")
	target.flags(c)
	target.configFlag(c)
	backendFlag(c, &target.backend)
	return c
}

// print writes the plan as the flags say.
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

// terminal is the width of a terminal, and whether it may be coloured.
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

// whyNot answers --why-not.
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
