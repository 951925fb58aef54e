package chattest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Adapters are LoRA adapters without weights. A path that begins with "/no" has none, one that
// begins with "/bad" has one that cannot be served.
type Adapters struct {
	Slots int

	mu   sync.Mutex
	list []chat.Adapter
}

// LoadAdapter implements chat.Adapters.
func (a *Adapters) LoadAdapter(_ context.Context, name, path string, inPlace bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.IndexFunc(a.list, func(l chat.Adapter) bool { return l.Name == name })
	switch {
	case at >= 0 && !inPlace:
		return &engine.AdapterError{Name: name, Kind: engine.AdapterExists, Reason: "it is loaded"}
	case strings.HasPrefix(path, "/no"):
		return chat.NoAdapter(name, path)
	case strings.HasPrefix(path, "/bad"):
		return &engine.AdapterError{Name: name, Kind: engine.AdapterUnsupported, Reason: "use_dora is not supported"}
	case at >= 0:
		a.list[at].Path = path
		return nil
	case len(a.list) == a.Slots:
		return &engine.AdapterError{Name: name, Kind: engine.AdapterFull, Reason: "every slot has an adapter"}
	}
	a.list = append(a.list, chat.Adapter{Name: name, Path: path})
	slices.SortFunc(a.list, func(x, y chat.Adapter) int { return strings.Compare(x.Name, y.Name) })
	return nil
}

// UnloadAdapter implements chat.Adapters.
func (a *Adapters) UnloadAdapter(_ context.Context, name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.list)
	if a.list = slices.DeleteFunc(a.list, func(l chat.Adapter) bool { return l.Name == name }); len(a.list) == n {
		return &engine.AdapterError{Name: name, Kind: engine.AdapterUnknown, Reason: "it is not loaded"}
	}
	return nil
}

// Has reports whether an adapter of that name is loaded, for chat.Settings.
func (a *Adapters) Has(name string) bool {
	return slices.ContainsFunc(a.Adapters(), func(l chat.Adapter) bool { return l.Name == name })
}

// Adapters implements chat.Adapters.
func (a *Adapters) Adapters() []chat.Adapter {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list)
}
