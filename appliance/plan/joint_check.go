package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/schema"
)

// listenerFields belong to the listener, of which there is one.
var listenerFields = []string{"serve.host", "serve.port", "serve.tls", "serve.timeouts.header", "serve.timeouts.idle", "log.format"}

// CheckTogether refuses profiles that cannot be served by one process behind one listener: fields
// of the listener that differ, names and files that two have, models of several ranks. The error
// joins a *schema.Error for each of them.
func CheckTogether(all []*schema.Profile) error {
	var errs []error
	for i, p := range all {
		errs = append(errs, alone(p), sameListener(all[0], p))
		for _, before := range all[:i] {
			errs = append(errs, sameProfile(before, p), sameNames(before, p), sameFiles(before, p))
		}
	}
	return errors.Join(errs...)
}

// alone refuses a profile that needs the machine for itself.
func alone(p *schema.Profile) error {
	for _, f := range []struct {
		path string
		asks bool
	}{
		{"parallel.tensor", p.Parallel.Tensor > 1}, {"parallel.pipeline", p.Parallel.Pipeline > 1}, {"cpu.ranks", p.CPU.Ranks > 1},
	} {
		if f.asks {
			return p.Reject(f.path, "a model of several ranks is served alone; start it by itself, or leave the field out")
		}
	}
	return nil
}

// at returns the position of a field, for a message.
func at(p *schema.Profile, path string) string { return p.Pos(path).String() }

func sameProfile(a, b *schema.Profile) error {
	if a.Name == b.Name {
		return b.Reject("name", "%q is also the name of the profile at %s; profiles that run together need different names", b.Name, at(a, "name"))
	}
	return nil
}

// sameListener refuses fields of the listener that differ.
func sameListener(a, b *schema.Profile) error {
	var errs []error
	for _, path := range listenerFields {
		x, y := a.Value(path), b.Value(path)
		if x == y {
			continue
		}
		errs = append(errs, b.Reject(path, "%s differs from %s at %s, and the profiles have one listener; give both the same value", absent(y), absent(x), at(a, path)))
	}
	return errors.Join(errs...)
}

func absent(value string) string {
	if value == "" {
		return "an absent field"
	}
	return value
}

// nameAt is a name of a model with the field that gives it.
type nameAt struct{ name, path string }

// modelNames returns the served names and the names of adapters.
func modelNames(p *schema.Profile) (list []nameAt) {
	for _, n := range p.Serve.ServedModelName {
		list = append(list, nameAt{n, "serve.servedModelName"})
	}
	if p.LoRA != nil {
		for n := range p.LoRA.Adapters {
			list = append(list, nameAt{n, schema.Join("lora.adapters", n)})
		}
	}
	slices.SortFunc(list, func(x, y nameAt) int { return strings.Compare(x.name, y.name) })
	return list
}

// sameNames refuses a name that requests could mean either model by.
func sameNames(a, b *schema.Profile) error {
	var errs []error
	for _, y := range modelNames(b) {
		for _, x := range modelNames(a) {
			if x.name == y.name {
				errs = append(errs, b.Reject(y.path, "the name %q is also served by the profile at %s; a request's model must name one of them", y.name, at(a, x.path)))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// sameFiles refuses files and endpoints that two servers cannot share.
func sameFiles(a, b *schema.Profile) error {
	var errs []error
	for _, path := range []string{"serve.responses.store", "log.audit.file", "serve.kvEvents.endpoint", "serve.kvEvents.replayEndpoint"} {
		x, y := sharedThing(a, path), sharedThing(b, path)
		if x != "" && x == y {
			errs = append(errs, b.Reject(path, "%s is also that of the profile at %s; give each profile its own", b.Value(path), at(a, path)))
		}
	}
	return errors.Join(errs...)
}

// sharedThing returns the file or the endpoint of a field; "": it has none.
func sharedThing(p *schema.Profile, path string) string {
	switch s := p.Serve; {
	case path == "serve.responses.store" && s.Responses != nil:
		return p.Path(s.Responses.Store)
	case path == "log.audit.file" && p.Log.Audit != nil:
		return p.Path(p.Log.Audit.File)
	case path == "serve.kvEvents.endpoint" && s.KVEvents != nil:
		return s.KVEvents.Endpoint
	case path == "serve.kvEvents.replayEndpoint" && s.KVEvents != nil:
		return s.KVEvents.ReplayEndpoint
	}
	return ""
}

// describe returns how a member's memory is set: its field and value.
func (m *Member) describe() (path, value string) {
	if m.Plan.utilization > 0 {
		return "memory.utilization", fmt.Sprint(m.Plan.utilization)
	}
	return "memory.kvCache", size(m.w.kvCache)
}
