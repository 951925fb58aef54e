package appliance

import (
	"context"
	"errors"
	"fmt"

	"vapp.dev/appliance/hub"
	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/starter"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// Scope is what a made profile is for.
type Scope uint8

// The scopes.
const (
	ForMachine Scope = iota // the machine
	ForDevices              // any device of a list: nothing in it depends on the machine
	ForFile                 // the machine, as a file of a folder of profiles
)

// MadeName returns what messages call the profile that is made for the source.
func MadeName(s starter.Source) string { return "profile made for " + schema.OneLine(s.Arg) }

// MakeProfile returns the text of a profile for a model, with figures for the machine. It reads
// the model's headers and opens no device. The same facts give the same text.
func (m Machine) MakeProfile(s starter.Source, scope Scope) ([]byte, error) {
	name := MadeName(s)
	m.Text = starter.Profile{Source: s}.Text()
	p, err := m.draft(name)
	if err != nil {
		return nil, err
	}
	if scope == ForDevices {
		model, err := m.inspect(p)
		if missing := (*engine.MissingError)(nil); errors.As(err, &missing) {
			return nil, &starter.UnknownError{Source: s, Path: missing.Source.Path}
		} else if err != nil {
			return nil, err
		}
		if err := model.Close(); err != nil {
			return nil, err
		}
		return starter.Profile{Source: s, Fields: starter.ForDevices()}.Text(), nil
	}
	if m, err = m.atTarget(p); err != nil { // of --set
		return nil, err
	}
	op, err := m.choose(p)
	if err != nil {
		return nil, err
	}
	gpu := op.Name() == "cuda"
	if !gpu && !p.Says("scheduler.maxNumSeqs") {
		p.Scheduler.MaxNumSeqs = plan.StartSeqs
	}
	in, err := m.inputs(p)
	if missing := (*engine.MissingError)(nil); errors.As(err, &missing) {
		return nil, &starter.UnknownError{Source: s, Path: missing.Source.Path}
	} else if err != nil {
		return nil, err
	}
	defer in.Model.Close()
	figures, err := plan.NewStart(in)
	if err != nil {
		return nil, err
	}
	made := starter.Profile{Source: s, Fields: madeFields(in, figures)}
	if scope == ForFile {
		made.Package = schema.Package
	}
	return made.Text(), nil
}

// madeFields returns the fields that depend on the model and the machine, with their reasons.
func madeFields(in plan.Inputs, f plan.Start) []starter.Field {
	c := in.Model.Config
	list := []starter.Field{lengthField(f, c.MaxPositionEmbeddings)}
	switch {
	case f.KVCache > 0 && f.Whole:
		list = append(list, starter.Field{Path: "memory.kvCache", Value: size(f.KVCache), Why: fmt.Sprintf(
			"the KV cache: what %d sequences of %d tokens need", in.Profile.Scheduler.MaxNumSeqs, f.MaxModelLen)})
	case f.KVCache > 0 && f.Memory > 0:
		list = append(list, starter.Field{Path: "memory.kvCache", Value: size(f.KVCache), Why: fmt.Sprintf(
			"the KV cache: with it the server takes at most %d %% of the %s that are available here", f.Percent, plan.Size(f.Memory))})
	case f.KVCache > 0:
		list = append(list, starter.Field{Path: "memory.kvCache", Value: size(f.KVCache), Why: "the KV cache; the memory of this machine is unknown"})
	case f.GPU:
		list = append(list, starter.Field{Path: "memory.utilization", Value: "0.9", Why: "the share of the GPU's memory that the server takes, as in vLLM; the rest of it after the weights is the KV cache"})
	default:
		list = append(list, starter.Field{Path: "memory.utilization", Value: "0.9", Why: "the share of the memory that the server may take"})
	}
	if f.GPU {
		list = append(list, starter.Field{Path: "scheduler.maxNumSeqs", Value: "256", Why: "sequences that run at the same time, as in vLLM"})
	} else {
		list = append(list, starter.Field{Path: "scheduler.maxNumSeqs", Value: fmt.Sprint(plan.StartSeqs), Why: "sequences that run at the same time; a CPU gains little from more"})
	}
	if in.Model.Pooling != nil {
		return list
	}
	if f.Weights < smallModel && unsampled(in.Model) {
		list = append(list, starter.Field{Path: "sampling", Value: "{temperature: 0, repetitionPenalty: 1.05}",
			Why: "the likeliest token, because the model has fewer than 500 million parameters and no generation_config.json: sampled, so small a model leaves the subject; the penalty ends its loops"})
	}
	template := in.Model.Checkpoint.ChatTemplate()
	if in.Model.Where == engine.FromCatalogue || in.Model.Source.Config != "" {
		template = "" // it is that of dummy weights
	}
	return append(list, starter.ParserFields(starter.ParsersOf(c.Architecture, template))...)
}

// smallModel is the number of weights below which a model is not sampled unless it says how.
const smallModel = 500_000_000

// unsampled reports whether a checkpoint does not say how its model is sampled.
func unsampled(m *engine.Model) bool {
	g := m.Checkpoint.GenerationConfig()
	return m.Where == engine.FromCheckpoint && g.Temperature == nil && g.TopP == nil && g.TopK == nil && g.DoSample == nil
}

func size(n int64) string { return fmt.Sprintf("%q", schema.Bytes(n)) }

func lengthField(f plan.Start, longest int) starter.Field {
	out := starter.Field{Path: "maxModelLen", Value: fmt.Sprint(f.MaxModelLen)}
	switch {
	case f.MaxModelLen == 0:
		out.Value, out.Why = `"auto"`, "tokens of a prompt and its reply: the longest sequence that fits"
	case f.MaxModelLen == longest:
		out.Why = "tokens of a prompt and its reply: all that the model can"
	default:
		out.Why = fmt.Sprintf("tokens of a prompt and its reply; the model can %d, which would take more memory for each sequence", longest)
	}
	return out
}

// Fetch makes the profile of a hub model that is not on this machine. It downloads the model's
// config, makes a profile and, with weights, checks that it can run here before it downloads the
// weights. A GGUF file has its config in it, and is always downloaded.
func (m Machine) Fetch(ctx context.Context, s starter.Source, c *hub.Client, weights bool) ([]byte, error) {
	n, ok := hub.ParseName(s.Model)
	if !ok {
		return nil, fmt.Errorf("%q is no name of the hub", s.Model)
	}
	n, err := n.At(s.Revision)
	if err != nil {
		return nil, err
	}
	pull, err := c.Open(ctx, n, hub.Want{Format: "auto"})
	if err != nil {
		return nil, err
	}
	if pull.Config() {
		known := m
		known.Config = pull.Dir
		text, err := known.MakeProfile(s, ForMachine)
		if err != nil || !weights {
			return text, err
		}
		known.Text = text
		p, err := known.Load(MadeName(s))
		if err != nil {
			return nil, err
		}
		if err := known.startable(p); err != nil {
			return nil, err
		}
	}
	if _, err = pull.Weights(ctx); err != nil {
		return nil, err
	}
	return m.MakeProfile(s, ForMachine)
}

// Unknown reports whether err is that a model is neither on this machine nor in the catalogue.
func Unknown(err error) bool {
	var unknown *starter.UnknownError
	return errors.As(err, &unknown)
}
