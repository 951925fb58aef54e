package appliance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/hub"
	"vapp.dev/appliance/metrics"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// adapters loads LoRA adapters into an engine, from folders and from the Hugging Face cache.
type adapters struct {
	engine  adapterEngine
	profile *schema.Profile // by whose rules paths are resolved
	hub     hub.Settings
	log     *slog.Logger // nil: nothing is logged
	over    *handover    // nil: no engine takes the place of this one
}

// adapterEngine is what adapters uses of an engine; engine.Engine is one.
type adapterEngine interface {
	LoadAdapter(ctx context.Context, name, dir string, inPlace bool) error
	UnloadAdapter(ctx context.Context, name string) error
	Adapters() []engine.AdapterInfo
}

// adapters returns the adapters of the loaded engine; nil if the profile has no slots for them.
func (p *Prepared) adapters(e *engine.Engine, log *slog.Logger) *adapters {
	if p.Profile.LoRA == nil || e == nil {
		return nil
	}
	return &adapters{e, p.Profile, p.hub, log, &handover{}}
}

// LoadAdapter implements chat.Adapters.
func (a *adapters) LoadAdapter(ctx context.Context, name, path string, inPlace bool) error {
	dir, err := a.folder(name, path)
	if err != nil {
		return err
	}
	if err := a.engine.LoadAdapter(ctx, name, dir, inPlace); err != nil {
		return err
	}
	if a.log != nil {
		a.log.Info("LoRA adapter loaded", "name", name, "path", dir)
	}
	return a.repeat(func(next *adapters) error { return next.engine.LoadAdapter(ctx, name, dir, true) })
}

// UnloadAdapter implements chat.Adapters.
func (a *adapters) UnloadAdapter(ctx context.Context, name string) error {
	if err := a.engine.UnloadAdapter(ctx, name); err != nil {
		return err
	}
	if a.log != nil {
		a.log.Info("LoRA adapter unloaded", "name", name)
	}
	return a.repeat(func(next *adapters) error { return next.forget(ctx, name) })
}

// forget unloads an adapter if it is loaded: a client may have unloaded it.
func (a *adapters) forget(ctx context.Context, name string) error {
	var e *engine.AdapterError
	if err := a.UnloadAdapter(ctx, name); !errors.As(err, &e) || e.Kind != engine.AdapterUnknown {
		return err
	}
	return nil
}

// Adapters implements chat.Adapters.
func (a *adapters) Adapters() []chat.Adapter {
	var out []chat.Adapter
	for _, i := range a.engine.Adapters() {
		out = append(out, chat.Adapter{Name: i.Name, Path: i.Path})
	}
	slices.SortFunc(out, func(x, y chat.Adapter) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// folder returns the folder of the adapter that path names, by the rules of model.source: a path,
// or the name of a model of the hub that is in the cache. It does not use the network.
func (a *adapters) folder(name, path string) (string, error) {
	dir := a.profile.Path(path)
	if _, err := os.Stat(filepath.Join(dir, adapterConfig)); err == nil {
		return dir, nil
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // the engine names the missing file
	}
	if n, ok := hub.ParseName(path); ok {
		if dir, ok := a.hub.FindFile(n, adapterConfig); ok {
			return dir, nil
		}
	}
	return "", chat.NoAdapter(name, path)
}

// adapterConfig is the file of an adapter's folder that describes it.
const adapterConfig = "adapter_config.json"

// leastChange is the least time limit of loading or unloading an adapter in a running server.
const leastChange = 10 * time.Second

// change loads and unloads adapters so that those of next are loaded in place of those of old, which
// is nil at start. If one fails it restores those of old and returns the error, with those of restoring, with the position of
// the adapter's field. Adapters that are in neither profile stay. Unless the server starts, each step
// takes at most serve.drainTimeout or leastChange: a slot may have to wait for running requests.
func (a *adapters) change(ctx context.Context, old, next *schema.Profile) error {
	limit := max(next.Serve.DrainTimeout.Time(), leastChange)
	bounded := func(do func(context.Context) error) error {
		if old == nil {
			return do(ctx)
		}
		ctx, stop := context.WithTimeout(ctx, limit)
		defer stop()
		return do(ctx)
	}
	before, after := adaptersOf(old), adaptersOf(next)
	var undo []func() error
	var failed error
	step := func(p *schema.Profile, name string, do, back func() error) {
		if failed != nil {
			return
		}
		if err := do(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("it is not done after %v (serve.drainTimeout): its requests still run", limit)
			}
			failed = p.Reject(schema.Join(adaptersField, name), "%v", err)
			return
		}
		undo = append(undo, back)
	}
	load := func(p *schema.Profile, name, path string) func() error {
		from := *a
		from.profile = p
		return func() error { // in place: a client may have loaded one
			return bounded(func(ctx context.Context) error { return from.LoadAdapter(ctx, name, path, true) })
		}
	}
	unload := func(name string) func() error {
		return func() error { return bounded(func(ctx context.Context) error { return a.forget(ctx, name) }) }
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			step(old, name, unload(name), load(old, name, before[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, known := before[name]
		switch {
		case !known:
			step(next, name, load(next, name, after[name]), unload(name))
		case old.Path(was) != next.Path(after[name]):
			step(next, name, load(next, name, after[name]), load(old, name, was))
		}
	}
	if failed == nil {
		return nil
	}
	for _, back := range slices.Backward(undo) {
		failed = errors.Join(failed, back())
	}
	return failed
}

// adaptersField is the path of lora.adapters.
const adaptersField = "lora.adapters"

// CheckAdapters returns an error for more adapters than slots, and for one with a served name.
func CheckAdapters(p *schema.Profile) error {
	list := adaptersOf(p)
	if n := len(list); n > 0 && n > p.LoRA.MaxLoras {
		return p.Reject(adaptersField, "%d adapters are more than lora.maxLoras, %d; set lora.maxLoras to %d", n, p.LoRA.MaxLoras, n)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if slices.Contains(servedNames(p), name) {
			return p.Reject(schema.Join(adaptersField, name), "requests for %s are for the model itself; give the adapter another name", name)
		}
	}
	return nil
}

// adaptersOf returns lora.adapters of a profile.
func adaptersOf(p *schema.Profile) map[string]string {
	if p == nil || p.LoRA == nil {
		return nil
	}
	return p.LoRA.Adapters
}

// use returns the slots and the adapters of running and waiting requests, for metrics.
func (a *adapters) use() metrics.AdapterUse {
	u := metrics.AdapterUse{Slots: a.profile.LoRA.MaxLoras}
	for _, i := range a.engine.Adapters() {
		if i.Running > 0 {
			u.Running = append(u.Running, i.Name)
		}
		if i.Waiting > 0 {
			u.Waiting = append(u.Waiting, i.Name)
		}
	}
	return u
}
