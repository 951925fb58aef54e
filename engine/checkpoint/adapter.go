package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// ErrAdapterForm is wrapped by errors about adapters of a form that is not served, such as DoRA.
var ErrAdapterForm = errors.New("the form of the adapter is not served")

// MaxAdapterRank is the largest rank of an adapter.
const MaxAdapterRank = 512

// The files of an adapter, as PEFT writes them.
const (
	adapterConfig  = "adapter_config.json"
	adapterWeights = "adapter_model.safetensors"
)

// Adapter is a low-rank adapter (LoRA) on disk, in PEFT's format.
type Adapter struct {
	Path    string
	Base    string // base_model_name_or_path; "": not named
	Rank    int    // the largest of its matrices
	Modules []AdapterMatrix
	file    *file
}

// AdapterMatrix is what an adapter adds to one matrix of the model: Scale · B·A.
type AdapterMatrix struct {
	Module string // "model.layers.0.self_attn.q_proj"
	Rank   int
	// Scale is lora_alpha / rank or, with use_rslora, lora_alpha / √rank.
	Scale   float64
	In, Out int
	a, b    TensorInfo // [Rank, In], [Out, Rank]
}

// ReadAdapter reads the folder of an adapter: adapter_config.json and the header of
// adapter_model.safetensors. It refuses ranks above maxRank. Errors are *Error; those about forms that are
// not served wrap ErrAdapterForm. The caller closes the adapter.
func ReadAdapter(dir string, maxRank int) (*Adapter, error) {
	path := filepath.Join(dir, adapterConfig)
	raw, err := readSmall(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{File: path, Msg: "no such file; an adapter is a folder with " + adapterConfig + " and " + adapterWeights, Err: err}
	}
	if err != nil {
		return nil, err
	}
	c, err := parseAdapterConfig(path, raw)
	if err != nil {
		return nil, err
	}
	path = filepath.Join(dir, adapterWeights)
	f, err := openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		msg := "no such file"
		if _, other := os.Stat(filepath.Join(dir, "adapter_model.bin")); other == nil {
			return nil, &Error{File: path, Msg: "no such file, and adapter_model.bin (pickle) is not read; save the adapter with safe_serialization=True", Err: ErrAdapterForm}
		}
		return nil, &Error{File: path, Msg: msg, Err: err}
	}
	if err != nil {
		return nil, err
	}
	var list []TensorInfo
	err = catchFault(path, func() (err error) {
		list, err = parseSafetensors(path, f.data)
		return err
	})
	a := &Adapter{Path: dir, Base: c.base, file: f}
	if err == nil {
		err = a.pair(path, list, c, maxRank)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return a, nil
}

// Close closes the adapter's file.
func (a *Adapter) Close() error { return a.file.close() }

// adapterForm is an adapter_config.json.
type adapterForm struct {
	base          string
	rank          int
	alpha         float64
	rslora        bool
	ranks, alphas []adapterPattern
}

// adapterPattern is an entry of rank_pattern or alpha_pattern.
type adapterPattern struct {
	match *regexp.Regexp
	value float64
}

// valueOf returns the value of the first pattern that matches a module, else other.
func valueOf(list []adapterPattern, module string, other float64) float64 {
	for _, p := range list {
		if p.match.MatchString(module) {
			return p.value
		}
	}
	return other
}

// parseAdapterConfig reads adapter_config.json. It refuses the forms of LoRA that the file's other
// keys select.
func parseAdapterConfig(path string, raw []byte) (adapterForm, error) {
	c := adapterForm{}
	f, err := newFields(path, "", raw)
	if err != nil {
		return c, err
	}
	if t := f.text("peft_type", ""); f.err == nil && t != "LORA" {
		return c, notServed(path, "peft_type", "is %s; LORA is served", clip(t))
	}
	for _, key := range []string{"use_dora", "lora_bias", "use_qalora", "fan_in_fan_out"} {
		if f.flag(key, false) {
			return c, notServed(path, key, "is true; plain LoRA and rsLoRA are served")
		}
	}
	if bias := f.text("bias", "none"); f.err == nil && bias != "none" {
		return c, notServed(path, "bias", "is %s; adapters without biases are served (\"none\")", clip(bias))
	}
	for _, key := range []string{"layer_replication", "modules_to_save", "trainable_token_indices", "alora_invocation_tokens", "target_parameters", "use_bdlora", "kasa_config", "monteclora_config", "arrow_config"} {
		if v, ok := f.raw(key); ok && string(v) != "[]" && string(v) != "{}" {
			return c, notServed(path, key, "is set; adapters of linear layers alone are served")
		}
	}
	if v, ok := f.raw("init_lora_weights"); ok {
		switch string(v) {
		case "true", "false", `"gaussian"`, `"eva"`, `"orthogonal"`, `"lora_ga"`:
		default:
			return c, notServed(path, "init_lora_weights", "is %s, which changes the base's weights; convert the adapter to plain LoRA (PEFT: path_initial_model_for_weight_conversion)", clip(string(v)))
		}
	}
	c.base = f.text("base_model_name_or_path", "")
	c.rank = f.count("r", 1, MaxAdapterRank)
	c.alpha = f.realOr("lora_alpha", 0, 1e9, 8)
	c.rslora = f.flag("use_rslora", false)
	if f.err != nil {
		return c, f.err
	}
	if c.ranks, err = adapterPatterns(f, "rank_pattern", 1, MaxAdapterRank); err == nil {
		c.alphas, err = adapterPatterns(f, "alpha_pattern", 0, 1e9)
	}
	return c, err
}

func notServed(path, field, format string, args ...any) error {
	return &Error{File: path, Field: field, Msg: fmt.Sprintf(format, args...), Err: ErrAdapterForm}
}

// adapterPatterns reads an object of numbers in [lo, hi]. Its keys are names of modules, or regular
// expressions, that match the end of a module's path (peft.utils.other.get_pattern_key).
func adapterPatterns(f *fields, key string, lo, hi float64) ([]adapterPattern, error) {
	v, ok := f.raw(key)
	if !ok {
		return nil, nil
	}
	list, err := newFields(f.file, key+".", v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(v)))
	var out []adapterPattern
	if _, err := dec.Token(); err != nil {
		return nil, fault(f.file, key, "is not JSON: %v", err)
	}
	for dec.More() { // in the file's order: the first match counts
		t, err := dec.Token()
		name, _ := t.(string)
		var skipped json.RawMessage
		if err == nil {
			err = dec.Decode(&skipped)
		}
		if err != nil {
			return nil, fault(f.file, key, "is not JSON: %v", err)
		}
		x := list.realOr(name, lo, hi, -1)
		if list.err != nil {
			return nil, list.err
		}
		if x < 0 || key == "rank_pattern" && x != math.Trunc(x) {
			return nil, fault(f.file, key+"."+name, "is not a number that it may be")
		}
		re, err := regexp.Compile(`^(?:.*\.)?(?:` + name + `)$`)
		if err != nil || len(name) > 1000 {
			return nil, fault(f.file, key+"."+name, "is not a module's name or a regular expression that is read here")
		}
		if out = append(out, adapterPattern{re, x}); len(out) > maxTensors {
			return nil, fault(f.file, key, "has more than %d entries", maxTensors)
		}
	}
	return out, nil
}

// pair joins the tensors of each module.
func (a *Adapter) pair(path string, list []TensorInfo, c adapterForm, maxRank int) error {
	at := map[string]int{}
	for _, t := range list {
		module, half, err := adapterTensor(path, t)
		if err != nil {
			return err
		}
		i, ok := at[module]
		if !ok {
			i = len(a.Modules)
			at[module] = i
			a.Modules = append(a.Modules, AdapterMatrix{Module: module})
		}
		if half == "A" {
			a.Modules[i].a = t
		} else {
			a.Modules[i].b = t
		}
	}
	if len(a.Modules) == 0 {
		return fault(path, "", "has no tensors of an adapter")
	}
	for i := range a.Modules {
		m := &a.Modules[i]
		name := prefixOfPEFT + m.Module + ".lora_"
		switch {
		case m.a.Name == "":
			return fault(path, name+"A.weight", "is missing; %sB.weight is there", name)
		case m.b.Name == "":
			return fault(path, name+"B.weight", "is missing; %sA.weight is there", name)
		}
		m.Rank = int(valueOf(c.ranks, m.Module, float64(c.rank)))
		if m.a.Shape[0] != int64(m.Rank) || m.b.Shape[1] != int64(m.Rank) {
			return fault(path, m.a.Name, "has shape %v and B %v; the rank of the module is %d by %s", m.a.Shape, m.b.Shape, m.Rank, adapterConfig)
		}
		if m.Rank > maxRank {
			return fault(path, m.a.Name, "has rank %d, above the limit of %d; raise lora.maxRank", m.Rank, maxRank)
		}
		by := float64(m.Rank)
		if c.rslora {
			by = math.Sqrt(by)
		}
		m.Scale = valueOf(c.alphas, m.Module, c.alpha) / by
		m.In, m.Out = int(m.a.Shape[1]), int(m.b.Shape[0])
		a.Rank = max(a.Rank, m.Rank)
	}
	slices.SortFunc(a.Modules, func(x, y AdapterMatrix) int { return strings.Compare(x.Module, y.Module) })
	return nil
}

// prefixOfPEFT precedes the modules' names in the tensors that PEFT writes.
const prefixOfPEFT = "base_model.model."

// adapterTensor returns the module of a tensor, and "A" or "B".
func adapterTensor(path string, t TensorInfo) (module, half string, err error) {
	rest, ok := strings.CutPrefix(t.Name, prefixOfPEFT)
	switch {
	case strings.Contains(t.Name, "lora_magnitude_vector"):
		return "", "", notServed(path, t.Name, "belongs to DoRA; plain LoRA and rsLoRA are served")
	case strings.Contains(t.Name, "lora_embedding_"):
		return "", "", notServed(path, t.Name, "adapts an embedding; linear layers of blocks are adapted")
	case strings.HasSuffix(t.Name, ".bias"):
		return "", "", notServed(path, t.Name, "is a bias; adapters without biases are served")
	}
	for _, half := range []string{"A", "B"} {
		if module, found := strings.CutSuffix(rest, ".lora_"+half+".weight"); ok && found && module != "" {
			if len(t.Shape) != 2 || t.Format != kernels.F32 && t.Format != kernels.F16 && t.Format != kernels.BF16 {
				return "", "", fault(path, t.Name, "is %v of shape %v; a matrix of f32, f16 or bf16 is read", t.Format, t.Shape)
			}
			if t.Shape[0] > math.MaxInt32 || t.Shape[1] > math.MaxInt32 {
				return "", "", fault(path, t.Name, "has shape %v", t.Shape)
			}
			return module, half, nil
		}
	}
	return "", "", notServed(path, t.Name, "is not %sMODULE.lora_A.weight or lora_B.weight; adapters of linear layers alone are served", prefixOfPEFT)
}

// Matrices reads A, [Rank, In], and B, [Out, Rank], of a module, as they are stored.
func (a *Adapter) Matrices(m AdapterMatrix) (A, B []float32, err error) {
	read := func(t TensorInfo) []float32 {
		raw, out := make([]byte, t.Bytes), make([]float32, t.Elements())
		if err == nil {
			err = a.file.readAt(raw, t.Offset)
		}
		if err == nil {
			ref.Dequantize(t.Format, raw, out)
		}
		for _, x := range out {
			if err == nil && !finite(float64(x)) {
				err = fault(t.File, t.Name, "has numbers that are not finite")
			}
		}
		return out
	}
	A, B = read(m.a), read(m.b)
	return A, B, err
}

// EncodeFloats stores numbers as F32, F16 or BF16, rounded to nearest even.
func EncodeFloats(f kernels.Format, x []float32) []byte {
	out := make([]byte, 0, f.Bytes(int64(len(x))))
	for _, v := range x {
		switch f {
		case kernels.F16:
			out = binary.LittleEndian.AppendUint16(out, ref.FloatToHalf(v))
		case kernels.BF16:
			out = binary.LittleEndian.AppendUint16(out, ref.FloatToBFloat(v))
		default:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}
