package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// samplingFlags adds the API's sampling parameters as flags. Only flags that are given take effect;
// the defaults of the flags do not.
func samplingFlags(c *cobra.Command) {
	f := c.Flags()
	f.Int("max-tokens", 0, "maximum tokens of a reply (default: up to the model length)")
	f.Int("min-tokens", 0, "minimum tokens of a reply")
	f.Float64("temperature", 1, "0: greedy")
	f.Float64("top-p", 1, "sample from the most probable tokens with this total probability")
	f.Int("top-k", 0, "sample from this many most probable tokens; 0: all")
	f.Float64("min-p", 0, "minimum probability, relative to the most probable token")
	f.Float64("repetition-penalty", 1, "above 1 makes tokens of prompt and reply less likely")
	f.Float64("presence-penalty", 0, "above 0 makes tokens of the reply less likely")
	f.Float64("frequency-penalty", 0, "as presence-penalty, for each occurrence")
	f.Int64("seed", 0, "seed of sampling")
	f.StringArray("stop", nil, "text that ends a reply; may be repeated")
	f.Bool("ignore-eos", false, "continue after the end-of-sequence token")
}

// sampling are the names of these flags: the API's fields, with dashes.
var sampling = []string{
	"max-tokens", "min-tokens", "temperature", "top-p", "top-k", "min-p", "repetition-penalty", "presence-penalty",
	"frequency-penalty", "seed", "stop", "ignore-eos",
}

// samplingParams returns the flags that were given, as fields of the API.
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
