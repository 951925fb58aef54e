package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
)

// planFlags select the output of plan.
type planFlags struct {
	json, verbose, speed  bool
	html, whyNot, explain string
	compat                string
}

func newPlan() *cobra.Command {
	var show planFlags
	var target target
	c := &cobra.Command{
		Use:   "plan PROFILE|MODEL...",
		Short: "Show the memory of a server and how many requests fit",
		Long: `Plan computes the memory of "vapp up", byte for byte, and how many requests fit,
from the profile, the headers of the model's files and the properties of this
machine. Nothing is loaded. The first three lines are the verdict: whether it
fits, what it carries, and the one thing to know. -v adds every line of memory
and every decision. Without weights it plans from the config, or from the
embedded catalogue (vapp models); --config plans any config.json of a supported
model family. --gpu and --memory plan for another machine (vapp devices).

On a terminal the memory is drawn below the verdict (without colors if NO_COLOR is
set). --why-not 16x32K shows what would make 16 sequences of 32K tokens fit,
--why-not "8 images of 1120" what a request with 8 images of 1,120 tokens needs
("16x32K with 8 images of 1120": 16 such requests of 32K tokens in all),
--explain ITEM how a figure was computed (kv, weights.attention, concurrency, …),
--compat RELEASE what vLLM would log. --speed predicts tokens a second, from rates
that vapp doctor --measure found here or from a table of processors. --html writes
the plan, with the answer to one of these, to a page in place of the text.

` + argHelp + `

` + severalHelp,
		Args: needArgs(1, -1, "profiles or models"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := target.machine(c)
			if err = cmp.Or(err, show.check(c)); err != nil {
				return err
			}
			if args, err = expand(args); err != nil {
				return err
			}
			if len(args) > 1 {
				return planSeveral(c, args, m, show)
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
				return show.refused(c, err)
			}
			defer p.Close()
			if show.speed {
				if p.Plan, err = p.Plan.WithSpeed(); err != nil {
					return err
				}
			}
			return show.print(c, p)
		},
	}
	c.Flags().BoolVar(&show.json, "json", false, "print JSON (docs/plan-json.md)")
	c.Flags().StringVar(&show.html, "html", "", "write the plan as one self-contained page to this file, in place of text")
	c.Flags().BoolVarP(&show.verbose, "verbose", "v", false, "also print the ledger of the memory, byte by byte, and every decision")
	c.Flags().StringVar(&show.whyNot, "why-not", "", "show what would make this many sequences of a length fit, such as 16x32K, or \"8 images of 1120\"")
	c.Flags().StringVar(&show.explain, "explain", "", "show how an item of the plan was computed, such as kv or weights.attention")
	c.Flags().BoolVar(&show.speed, "speed", false, "predict the speed: decode, prefill, 16 and 64 streams")
	c.Flags().StringVar(&show.compat, "compat", "", "also print what a vLLM release would log: vllm-0.7, vllm-2025-08, vllm-0.17, vllm-0.19, vllm-0.33")
	target.flags(c)
	target.configFlag(c)
	backendFlag(c, &target.backend)
	profileFlags(c, true)
	return c
}
