package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/devices"
)

func newFit() *cobra.Command {
	var over, config string
	var json bool
	c := &cobra.Command{
		Use:   "fit PROFILE|MODEL",
		Short: "Show on which devices a model or a profile fits, and its capacity there",
		Long: `Fit plans a profile, or a model with default options, for every device of a list:
all GPUs of the catalogue (vapp devices), or those of --over. Each row is a
separate plan: weights, KV cache, the longest sequence that fits, and how many
sequences of 4K tokens, 32K tokens and the model length fit at once. Memory limits
a count and the model the longest sequence, unless a mark says otherwise. A length
that no sequence may have, and a profile that does not fit, has "-".

` + argHelp,
		Args: needArgs(1, 1, "one profile or model"),
		RunE: func(c *cobra.Command, args []string) error {
			m := localMachine()
			m.Config = config
			path, m, err := profileArg(c, args[0], m, argUse{scope: appliance.ForDevices})
			if err != nil {
				return err
			}
			p, err := m.Load(path)
			if err != nil {
				return err
			}
			list, err := fitDevices(c, over)
			if err != nil {
				return err
			}
			rows, err := appliance.Fit(p, m, list)
			if err != nil {
				return err
			}
			if json {
				return plan.Rows(c.OutOrStdout(), p.Name, rows)
			}
			return fitTable(c, rows)
		},
	}
	c.Flags().StringVar(&over, "over", "", "devices to plan for, separated by commas; default: every GPU of the catalogue")
	c.Flags().StringVar(&config, "config", "", "plan the model of this config.json, or of the config.json in this folder")
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	profileFlags(c, false)
	return c
}

// fitDevices returns the devices of --over, or all GPUs.
func fitDevices(c *cobra.Command, over string) ([]devices.Device, error) {
	if over == "" {
		all, err := devices.List()
		var gpus []devices.Device
		for _, d := range all {
			if d.Kind == devices.GPU {
				gpus = append(gpus, d)
			}
		}
		return gpus, err
	}
	var out []devices.Device
	for _, name := range strings.Split(over, ",") {
		d, err := devices.Find(strings.TrimSpace(name))
		var unknown *devices.UnknownError
		if errors.As(err, &unknown) {
			return nil, &usageError{fmt.Errorf("--over: %w", err), c.CommandPath()}
		} else if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// alignMarks adds a space to the numbers without a mark in columns that have one.
func alignMarks(cells [][]string) {
	for column := range cells[0] {
		isMarked := func(row []string) bool {
			return slices.ContainsFunc(marks, func(m mark) bool { return strings.HasSuffix(row[column], m.mark) })
		}
		if column == len(cells[0])-1 || !slices.ContainsFunc(cells, isMarked) {
			continue
		}
		for _, row := range cells {
			if !isMarked(row) {
				row[column] += " "
			}
		}
	}
}

// mark is a mark of a limit, with its explanation below the table.
type mark struct {
	limit plan.Limit
	mark  string
	why   string
}

// marks are the marks of limits in the table, in the order of their explanations. A count without a mark is
// limited by memory, a longest sequence without one by the model.
var marks = []mark{
	{plan.ByMaxNumSeqs, "*", "limited by scheduler.maxNumSeqs: the KV cache holds more"},
	{plan.ByMemory, "°", "limited by memory: the model allows more"},
	{plan.ByStep, "+", "limited by scheduler.maxNumBatchedTokens: without chunked prefill a prompt must fit one step"},
}

func fitTable(c *cobra.Command, rows []plan.Row) error {
	used := map[string]bool{}
	marked := func(n int, l plan.Limit, without plan.Limit) string {
		if n == 0 {
			return "-"
		}
		s := plan.Group(int64(n))
		for _, m := range marks {
			if m.limit == l && l != without {
				used[m.mark] = true
				return s + m.mark
			}
		}
		return s
	}
	bytes := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return plan.Size(n)
	}
	var cells [][]string
	for _, r := range rows {
		note := r.Reason
		if r.Fits {
			note = "fits"
		}
		if len(r.PlanOnly) > 0 && r.Fits {
			note = "fits, plan-only"
		}
		cells = append(cells, []string{r.Device, bytes(r.Total), bytes(r.Weights), bytes(r.KV), marked(r.Longest, r.LimitLongest, plan.ByModel),
			marked(r.At4K, r.Limit4K, plan.ByMemory), marked(r.At32K, r.Limit32K, plan.ByMemory), marked(r.AtMax, r.LimitMax, plan.ByMemory), note})
	}
	alignMarks(cells)
	w := c.OutOrStdout()
	table(w, "lrrrrrrrl", []string{"DEVICE", "MEMORY", "WEIGHTS", "KV CACHE", "LONGEST", "4K", "32K", "MAX", ""}, cells)
	for _, m := range marks {
		if used[m.mark] {
			fmt.Fprintf(w, "%s %s\n", m.mark, m.why)
		}
	}
	return nil
}
