package openai

import "vapp.dev/appliance/chat"

// LoadAdapter is a decoded body of POST /v1/load_lora_adapter.
type LoadAdapter struct {
	Name, Path string
	InPlace    bool
}

// DecodeLoadAdapter reads the body of POST /v1/load_lora_adapter. Its errors are *chat.Error.
func DecodeLoadAdapter(b []byte) (LoadAdapter, error) {
	f, bad := body(b)
	if bad != nil {
		return LoadAdapter{}, bad
	}
	return readLoadAdapter(f)
}

func readLoadAdapter(f *fields) (LoadAdapter, error) {
	l := LoadAdapter{f.str("lora_name"), f.str("lora_path"), f.flag("load_inplace", false)}
	if f.flag("is_3d_lora_weight", false) {
		f.fail(chat.Errorf(chat.Unsupported, "is_3d_lora_weight", "Adapters of experts are not served: leave is_3d_lora_weight out."))
	}
	for _, name := range []string{"lora_name", "lora_path"} {
		if !f.has(name) {
			f.fail(malformed(name, "Field required: `%s`.", name))
		}
	}
	if f.err != nil {
		return LoadAdapter{}, f.err
	}
	return l, nil
}

// DecodeUnloadAdapter reads the body of POST /v1/unload_lora_adapter and returns the adapter's name.
// Its errors are *chat.Error.
func DecodeUnloadAdapter(b []byte) (name string, err error) {
	f, bad := body(b)
	if bad != nil {
		return "", bad
	}
	return readUnloadAdapter(f)
}

func readUnloadAdapter(f *fields) (name string, err error) {
	name = f.str("lora_name")
	if !f.has("lora_name") {
		f.fail(malformed("lora_name", "Field required: `lora_name`."))
	}
	if f.err != nil {
		return "", f.err
	}
	return name, nil
}

// AdapterAdded returns the text of a reply of POST /v1/load_lora_adapter.
func AdapterAdded(name string) string {
	return "Success: LoRA adapter '" + name + "' added successfully."
}

// AdapterRemoved returns the text of a reply of POST /v1/unload_lora_adapter.
func AdapterRemoved(name string) string {
	return "Success: LoRA adapter '" + name + "' removed successfully."
}
