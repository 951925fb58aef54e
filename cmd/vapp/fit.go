package main

import (
	"errors"
	"fmt"
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
		Long: `Fit plans a profile, or a model with default options, for every device of a list: all GPUs of the catalogue (vapp devices),
or those of --over. Each row is a separate plan: weights, KV cache, the longest
sequence that fits, and how many sequences of 4K tokens, 32K tokens and the
model length fit at once.

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

func fitTable(c *cobra.Command, rows []plan.Row) error {
	count := func(n int) string {
		if n == 0 {
			return "-"
		}
		return plan.Group(int64(n))
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
		cells = append(cells, []string{r.Device, bytes(r.Total), bytes(r.Weights), bytes(r.KV), count(r.Longest), count(r.At4K), count(r.At32K), count(r.AtMax), note})
	}
	table(c.OutOrStdout(), "lrrrrrrrl", []string{"DEVICE", "MEMORY", "WEIGHTS", "KV CACHE", "LONGEST", "4K", "32K", "MAX", ""}, cells)
	return nil
}
