package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/devices"
)

func newDevices() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use:   "devices [NAME]",
		Short: "List the devices of the catalogue, which a plan can be made for",
		Long: `Devices lists the catalogue that "vapp plan --gpu NAME" reads: memory as the
driver reports it, the vendor's peak rates, and why nothing runs on a device that
is for planning only. With a NAME it says all that is known of one, and where
its memory's figure is from. A CPU of any other size is named in the same way:
cpu-<cores>c-<GiB>g, and -avx2, -avx512bf16 or -amx behind it.`,
		Args: needArgs(0, 1, "at most one device"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return oneDevice(c, args[0], json)
			}
			list, err := devices.List()
			if err != nil {
				return err
			}
			if json {
				return asJSON(c.OutOrStdout(), list)
			}
			var rows [][]string
			for _, d := range list {
				rows = append(rows, []string{
					d.Name, plan.Size(d.TotalBytes), formatRate(d.Bandwidth, "B/s"), formatRate(d.FP16, "FLOP/s"), computes(d), d.PlanOnly,
				})
			}
			table(c.OutOrStdout(), "lrrrll", []string{"DEVICE", "MEMORY", "BANDWIDTH", "16 BIT", "CAPABILITY", "PLAN ONLY"}, rows)
			return nil
		},
	}
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

// computes returns the compute capability of a GPU, or the instruction set variant of a CPU.
func computes(d devices.Device) string {
	if d.Kind == devices.GPU {
		return d.Capability
	}
	return d.Variants[0]
}

func oneDevice(c *cobra.Command, name string, json bool) error {
	d, err := devices.Find(name)
	var unknown *devices.UnknownError
	if errors.As(err, &unknown) {
		return &usageError{err, c.CommandPath()}
	} else if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if json {
		return asJSON(w, d)
	}
	number := func(n int, unit string) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n) + unit
	}
	rate := func(x float64) string {
		if x == 0 {
			return ""
		}
		return formatRate(x, "FLOP/s")
	}
	size := func(n int64) string {
		if n == 0 {
			return ""
		}
		return plan.Size(n)
	}
	batch := ""
	if d.Batch.Tokens > 0 {
		batch = fmt.Sprintf("%d tokens, %d sequences (vLLM's API server)", d.Batch.Tokens, d.Batch.Seqs)
	}
	pairs(w, [][2]string{
		{"device", d.Name}, {"driver's name", d.DriverName}, {"aliases", strings.Join(d.Aliases, ", ")},
		{"memory", fmt.Sprintf("%s (%s bytes): %s", plan.Size(d.TotalBytes), plan.Group(d.TotalBytes), d.Source)},
		{"cores", number(d.Cores, "")}, {"SMs", number(d.SMs, "")}, {"capability", d.Capability},
		{"instructions", strings.Join(d.Variants, ", ")}, {"bandwidth", formatRate(d.Bandwidth, "B/s")},
		{"16 bit", rate(d.FP16)}, {"fp8", rate(d.FP8)}, {"fp4", rate(d.FP4)},
		{"L2", size(d.L2Bytes)}, {"shared memory", size(d.SharedBytes)},
		{"default batch", batch}, {"plan only", d.PlanOnly},
	})
	return nil
}
