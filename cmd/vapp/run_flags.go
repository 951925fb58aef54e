package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// samplingFlags are the API's parameters as flags. Their defaults are nobody's:
// only what is given counts.
func samplingFlags(c *cobra.Command) {
	f := c.Flags()
	f.Int("max-tokens", 0, "most tokens of a reply (default: what the model's length leaves)")
	f.Int("min-tokens", 0, "fewest tokens of a reply")
	f.Float64("temperature", 1, "0 takes the likeliest token always")
	f.Float64("top-p", 1, "likeliest tokens that sum to this probability")
	f.Int("top-k", 0, "number of likeliest tokens; 0 is all")
	f.Float64("min-p", 0, "least probability, as a share of the likeliest token's")
	f.Float64("repetition-penalty", 1, "above 1 makes tokens of prompt and reply less likely")
	f.Float64("presence-penalty", 0, "above 0 makes tokens of the reply less likely")
	f.Float64("frequency-penalty", 0, "the same, for each time they came")
	f.Int64("seed", 0, "makes a sampled reply repeatable")
	f.StringArray("stop", nil, "text that ends a reply; may be given more than once")
	f.Bool("ignore-eos", false, "go on where the model would end")
}

// sampling are the flags above, named as fields of the API but for the dashes.
var sampling = []string{
	"max-tokens", "min-tokens", "temperature", "top-p", "top-k", "min-p", "repetition-penalty", "presence-penalty",
	"frequency-penalty", "seed", "stop", "ignore-eos",
}

// samplingParams are those that were given, as fields of the API.
func samplingParams(c *cobra.Command) map[string]any {
	f := c.Flags()
	out := map[string]any{}
	for _, name := range sampling {
		if !f.Changed(name) {
			continue
		}
		var v any
		switch f.Lookup(name).Value.Type() {
		case "int":
			v, _ = f.GetInt(name)
		case "int64":
			v, _ = f.GetInt64(name)
		case "float64":
			v, _ = f.GetFloat64(name)
		case "bool":
			v, _ = f.GetBool(name)
		case "stringArray":
			v, _ = f.GetStringArray(name)
		}
		out[strings.ReplaceAll(name, "-", "_")] = v
	}
	return out
}
