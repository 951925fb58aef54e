package chat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"vapp.dev/engine"
)

// Adapter is a loaded LoRA adapter.
type Adapter struct {
	Name string // what requests give as model
	Path string // its folder
}

// Adapters loads and unloads the LoRA adapters of an engine. Its methods may be called from any
// goroutine.
type Adapters interface {
	// LoadAdapter loads the adapter at path. With inPlace it replaces a loaded adapter of the name;
	// without, the error of such a name is an *engine.AdapterError. A path without an adapter has an
	// *Error of kind NotFound.
	LoadAdapter(ctx context.Context, name, path string, inPlace bool) error
	// UnloadAdapter refuses new requests for an adapter, lets the running ones end, and frees the slot.
	UnloadAdapter(ctx context.Context, name string) error
	// Adapters returns the loaded adapters by name.
	Adapters() []Adapter
}

// Adapters returns the loaded LoRA adapters, sorted by name.
func (s *Service) Adapters() []Adapter {
	if s.cfg.Adapters == nil {
		return nil
	}
	return s.cfg.Adapters.Adapters()
}

// HasAdapter reports whether an adapter of that name is loaded.
func (s *Service) HasAdapter(name string) bool {
	return slices.ContainsFunc(s.Adapters(), func(a Adapter) bool { return a.Name == name })
}

// LoadAdapter loads the LoRA adapter at path under a name, with vLLM's messages. Its errors are
// *Error.
func (s *Service) LoadAdapter(ctx context.Context, name, path string, inPlace bool, set *Settings) error {
	switch {
	case s.cfg.Adapters == nil:
		return noAdapters()
	case name == "" || path == "":
		return Errorf(InvalidUserInput, "", "Both 'lora_name' and 'lora_path' must be provided.")
	case !validAdapterName(name):
		return Errorf(InvalidUserInput, "lora_name", "The lora_name has 1 to %d characters, none of them a comma, a space or a control character.", maxAdapterName)
	case slices.Contains(set.Models, name):
		return Errorf(InvalidUserInput, "lora_name", "The lora adapter '%s' would have the name of the served model. Please choose another 'lora_name'.", name)
	}
	return adapterError(name, s.cfg.Adapters.LoadAdapter(ctx, name, path, inPlace))
}

// UnloadAdapter unloads a LoRA adapter, with vLLM's messages. Its errors are *Error.
func (s *Service) UnloadAdapter(ctx context.Context, name string) error {
	switch {
	case s.cfg.Adapters == nil:
		return noAdapters()
	case name == "":
		return Errorf(InvalidUserInput, "", "'lora_name' needs to be provided to unload a LoRA adapter.")
	}
	return adapterError(name, s.cfg.Adapters.UnloadAdapter(ctx, name))
}

func noAdapters() error {
	return Errorf(Unsupported, "", "The model has no slots for LoRA adapters: set lora.maxLoras in the profile.")
}

// maxAdapterName bounds the name of an adapter, in characters.
const maxAdapterName = 128

// validAdapterName reports whether a name can stand in logs and in the comma lists of metrics.
func validAdapterName(name string) bool {
	return name != "" && utf8.ValidString(name) && utf8.RuneCountInString(name) <= maxAdapterName &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || unicode.IsControl(r) })
}

// adapterError returns the error of loading or unloading as an *Error; nil for nil.
func adapterError(name string, err error) error {
	var e *engine.AdapterError
	if err == nil || !errors.As(err, &e) {
		if err != nil {
			return AsError(err)
		}
		return nil
	}
	switch e.Kind {
	case engine.AdapterUnknown:
		return Errorf(NotFound, "", "The lora adapter '%s' cannot be found.", name)
	case engine.AdapterExists:
		return Errorf(InvalidUserInput, "", "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", name)
	}
	return Errorf(Invalid, "", "%s", e.Error())
}

// NoAdapter returns the error for a path without an adapter, in vLLM's words.
func NoAdapter(name, path string) *Error {
	return Errorf(NotFound, "", "Loading lora %s failed: No adapter found for %s", name, path)
}
