package appliance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// predecessor is what a new engine takes over from the one before it. The zero value: nothing.
type predecessor struct {
	weights  backend.PackedWeights // nil: the weights are loaded
	adapters adapterSet
}

// adapterSet is the LoRA adapters that an engine had while a profile was in force. The zero value: there was no engine.
type adapterSet struct {
	list  []chat.Adapter
	under *schema.Profile
}

// adapterSet returns the adapters of s now.
func (a *Appliance) adapterSet(s *served) adapterSet {
	set := adapterSet{under: a.live.Load().profile}
	if s.adapters != nil {
		set.list = s.adapters.Adapters()
	}
	return set
}

// handover lets the changes of clients reach the engine that takes the place of theirs.
type handover struct {
	taking sync.Mutex               // held while the adapters of an engine before are taken over
	next   atomic.Pointer[adapters] // of the engine that replaces this one; nil: none does
}

// repeat does a change, which has succeeded, on the engine that takes the place of that of a, if one does.
func (a *adapters) repeat(do func(*adapters) error) error {
	if a.over == nil {
		return nil
	}
	next := a.over.next.Load()
	if next == nil {
		return nil
	}
	next.over.taking.Lock()
	defer next.over.taking.Unlock()
	return do(next)
}

// inherit gives a new engine, which serves next, the adapters of the one before it: those of clients, and those of the
// profile as clients left them, unless next has them otherwise. set is called after changes of clients reach the new
// engine. inherit returns the adapters that are missing afterwards, each with the reason. a is nil for an engine without slots.
func (a *adapters) inherit(ctx context.Context, set func() adapterSet, next *schema.Profile) (lost []string) {
	if a == nil {
		was := set()
		for _, l := range was.list {
			if _, of := adaptersOf(was.under)[l.Name]; !of {
				lost = append(lost, l.Name+": the profile has no slots for adapters (lora)")
			}
		}
		return lost
	}
	a.over.taking.Lock()
	defer a.over.taking.Unlock()
	want, lost := a.wanted(set(), next)
	have := map[string]string{}
	for _, l := range a.Adapters() {
		have[l.Name] = l.Path
		if _, stays := want[l.Name]; !stays {
			if err := a.engine.UnloadAdapter(ctx, l.Name); err != nil {
				lost = append(lost, fmt.Sprintf("%s: is still loaded: %v", l.Name, err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] == want[name] {
			continue
		}
		if err := a.engine.LoadAdapter(ctx, name, want[name], true); err != nil {
			lost = append(lost, fmt.Sprintf("%s: %v", name, err))
		}
	}
	return lost
}

// wanted returns the folders of the adapters that an engine with the profile next should have after one that had set,
// and why others are lost. Adapters of clients are lost if next has another model, or serves it under their name.
func (a *adapters) wanted(set adapterSet, next *schema.Profile) (want map[string]string, lost []string) {
	at := *a
	at.profile = next
	want, left := map[string]string{}, map[string]string{}
	for _, l := range set.list {
		left[l.Name] = l.Path
	}
	before, after := adaptersOf(set.under), adaptersOf(next)
	same := set.under != nil && set.under.Model.Source == next.Model.Source && set.under.Model.Revision == next.Model.Revision
	for name, path := range after {
		if was, known := before[name]; known && same && set.under.Path(was) == next.Path(path) {
			if dir, loaded := left[name]; loaded {
				want[name] = dir
			}
		} else if dir, err := at.folder(name, path); err == nil {
			want[name] = dir
		} else {
			lost = append(lost, fmt.Sprintf("%s: %v", name, err))
		}
	}
	for _, l := range set.list {
		_, was := before[l.Name]
		_, is := after[l.Name]
		switch {
		case was || is:
		case !same:
			lost = append(lost, fmt.Sprintf("%s: a client loaded it for model %s, the model is %s now", l.Name, revised(set.under), revised(next)))
		case slices.Contains(servedNames(next), l.Name):
			lost = append(lost, l.Name+": serve.servedModelName has its name now")
		default:
			want[l.Name] = l.Path
		}
	}
	return want, lost
}

// revised returns the model's source, with its revision if the profile gives one.
func revised(p *schema.Profile) string {
	if p.Model.Revision == "" {
		return p.Model.Source
	}
	return p.Model.Source + "@" + p.Model.Revision
}
