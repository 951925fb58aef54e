package openai

import "testing"

func FuzzAdapters(f *testing.F) {
	f.Add([]byte(`{"lora_name":"a","lora_path":"/a","load_inplace":true,"is_3d_lora_weight":false}`))
	f.Add([]byte(`{"lora_name":null,"lora_path":1}`))
	f.Add([]byte(`{"lora_name":"a","lora_path":"/a","is_3d_lora_weight":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := DecodeLoadAdapter(b); err != nil {
			checkError(t, err)
		}
		if _, err := DecodeUnloadAdapter(b); err != nil {
			checkError(t, err)
		}
	})
}
