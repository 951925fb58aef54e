package backend

import "fmt"

// RequiredFeature returns the feature that an op needs beyond those of a dense decoder
// (dense attention over the whole history, silu MLPs), such as "attention with a window".
// It returns "" for ops that every backend must run. Backends use it to reject what
// their kernels cannot do.
func RequiredFeature(op Op) string {
	switch o := op.(type) {
	case Add, Concat, Reorder, Softcap, Activate, Route, Experts, DeltaNet, Mamba2, DraftInput, Verify, GatherAccepted, Propose, Gate, GatherLast, Send, Receive, OutputRows, Adapt,
		LatentRope, HeadLinear, Patches, AvgPool, Standardize, EncoderOutput, Merge, Resample, Join:
		return OpName(op)
	case Conv:
		if o.Biased {
			return OpName(op) + " with a bias (Mamba-2)"
		}
		return OpName(op)
	case Embed:
		return first(op, o.Row0 != 0, "a part of the table")
	case Norm:
		return first(op, o.W == NoWeight, "no weights", o.Offset != 0, "an offset", o.Scale != 0, "a scale", o.Segment != 0, "segments", o.Gated, "a gate", o.Plain, "a mean")
	case Angles:
		return first(op, o.Draft != nil, "draft positions", o.Grid, "two positions", o.Sections != [3]int{}, "three positions", o.Temperature.Every != 0, "a temperature")
	case StoreKV:
		return first(op, o.Draft != nil, "draft positions")
	case Rope:
		return first(op, o.Norm != nil && o.Norm.Whole, "heads normalised together", o.Norm != nil && o.Norm.Each, "weights for each head", o.Norm != nil && o.Norm.Plain, "LayerNorm of heads", o.Norm != nil && o.Norm.After, "normalised rotated heads",
			o.Norm != nil, "normalised heads", o.Rotary == 0, "no rotation", o.Gated, "gated queries", o.Shared, "V from K", o.KVHeads == 0, "queries alone", o.Grid, "two positions", o.Interleaved, "neighbours rotated", o.Tempered, "tempered queries")
	case Attention:
		return first(op, o.Draft != nil, "draft positions", o.Bidirectional, "both directions", o.Items, "items that see themselves", o.Chunked, "chunks", o.Window > 0, "a window", o.Sinked, "sinks", o.Softcap != 0, "a softcap", o.Rebuild != nil, "keys rebuilt from values", o.Latent > 0, "latent keys")
	case GLU:
		return first(op, o.Act != SiLU, o.Act.String(), o.Limit != 0 || o.Alpha != 0 || o.Shift != 0, "clamping", o.Paired, "paired columns")
	}
	return ""
}

// first returns the op's name with the first feature of pairs (bool, string) that it has.
func first(op Op, pairs ...any) string {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].(bool) {
			return fmt.Sprintf("%s with %s", OpName(op), pairs[i+1])
		}
	}
	return ""
}
