package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"vapp.dev/tools/bench"
)

func newBenchCompare() *cobra.Command {
	return &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Compare two saved results",
		Long: `Prints each figure of two results that "vapp bench serve --save-result" (or vLLM's)
saved, B over A, the change in percent, and whether B is better or worse. Settings
that differ are named first. Sweeps are compared run by run where rate and
concurrency are the same.`,
		Args: needArgs(2, 2, "two saved results"),
		RunE: func(c *cobra.Command, args []string) error { return printComparison(c, args[0], args[1]) },
	}
}

func printComparison(c *cobra.Command, a, b string) error {
	text, err := bench.Compare(a, b)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.OutOrStdout(), text)
	return err
}
