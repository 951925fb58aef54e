package main

import (
	"github.com/spf13/cobra"

	"vapp.dev/tools/bench"
)

// imageFlags adds the flags of the dataset random-mm, which only bench serve sends.
func imageFlags(c *cobra.Command, d *bench.Dataset) {
	d.Images = &bench.Images{}
	f := c.Flags()
	f.Lookup("dataset-name").Usage = "dataset of the prompts: " + bench.ServedDatasets
	f.IntVar(&d.Images.Items, "random-mm-base-items-per-request", 1, "images of a request of random-mm")
	f.Float64Var(&d.Images.Range, "random-mm-num-mm-items-range-ratio", 0, "R: the number of images N is drawn from N(1-R) to N(1+R)")
	f.StringVar(&d.Images.Limits, "random-mm-limit-mm-per-prompt", bench.DefaultImageLimits, "maximum number of items of a request by kind")
	f.StringVar(&d.Images.Buckets, "random-mm-bucket-config", bench.DefaultImageBuckets, "probability of each size (height, width, frames); only 1 frame, an image, is made")
}

// datasetFlags adds the flags of the dataset, which bench serve and bench throughput share.
func datasetFlags(c *cobra.Command, d *bench.Dataset) {
	f := c.Flags()
	f.StringVar(&d.Name, "dataset-name", "random", "dataset of the prompts: "+bench.Datasets)
	f.StringVar(&d.Path, "dataset-path", "", "file for sharegpt (JSON), custom (JSONL), or sonnet (text)")
	f.IntVar(&d.Input, "input-len", 0, "prompt length in tokens, in place of the dataset's")
	f.IntVar(&d.Output, "output-len", 0, "output length in tokens, in place of the dataset's")
	f.BoolVar(&d.NoOversample, "no-oversample", false, "send fewer requests when the file has fewer, rather than repeating it")
	f.BoolVar(&d.InOrder, "disable-shuffle", false, "keep the order of a custom file")
	f.IntVar(&d.Random.Input, "random-input-len", 1024, "prompt length of random prompts")
	f.IntVar(&d.Random.Output, "random-output-len", 128, "output length of random prompts")
	f.Float64Var(&d.Random.Range, "random-range-ratio", 0, "R: each length L is drawn from L(1-R) to L(1+R)")
	f.IntVar(&d.Random.Prefix, "random-prefix-len", 0, "length of a prefix that all random prompts share")
	f.IntVar(&d.ShareGPTOutput, "sharegpt-output-len", 0, "output length for sharegpt, in place of the length of each answer")
	f.IntVar(&d.CustomOutput, "custom-output-len", 256, "output length of custom lines without output_tokens")
	f.IntVar(&d.Sonnet.Input, "sonnet-input-len", 550, "prompt length of sonnet prompts")
	f.IntVar(&d.Sonnet.Output, "sonnet-output-len", 150, "output length of sonnet prompts")
	f.IntVar(&d.Sonnet.Prefix, "sonnet-prefix-len", 200, "length of the prefix that all sonnet prompts share")
	f.IntVar(&d.Prefix.Prefix, "prefix-repetition-prefix-len", 256, "prefix length of prefix_repetition")
	f.IntVar(&d.Prefix.Suffix, "prefix-repetition-suffix-len", 256, "length of the rest of a prompt of prefix_repetition")
	f.IntVar(&d.Prefix.Prefixes, "prefix-repetition-num-prefixes", 10, "number of different prefixes of prefix_repetition")
	f.IntVar(&d.Prefix.Output, "prefix-repetition-output-len", 128, "output length of prefix_repetition")
}
