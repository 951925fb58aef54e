package openai

import (
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/pooling"
)

// PoolRequest is a decoded body of /v1/embeddings, /pooling or /classify.
type PoolRequest struct {
	Ask  pooling.Params
	Wire PoolWire
}

// PoolWire is the requested form of vectors.
type PoolWire struct {
	Encoding string // float, base64, bytes, bytes_only
	Dtype    string // key of dtypes, for encodings other than float
	Big      bool   // big-endian
	Unknown  []string
}

// DecodeEmbedding reads the body of POST /v1/embeddings. Its errors are *chat.Error.
func DecodeEmbedding(b []byte) (*PoolRequest, error) {
	return decodePool(b, func(*fields) string { return chat.TaskEmbed })
}

// DecodePooling reads the body of POST /pooling. Its errors are *chat.Error.
func DecodePooling(b []byte) (*PoolRequest, error) { return decodePool(b, poolTask) }

// DecodeClassify reads the body of POST /classify. Its errors are *chat.Error.
func DecodeClassify(b []byte) (*PoolRequest, error) {
	return decodePool(b, func(*fields) string { return chat.TaskClassify })
}

// poolTask reads the task of /pooling. It returns "", the model's default, for the
// older name encode.
func poolTask(f *fields) string {
	if task := f.str("task"); task != "encode" {
		return task
	}
	return ""
}

func decodePool(b []byte, task func(*fields) string) (*PoolRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	return readPool(f, task)
}

func readPool(f *fields, task func(*fields) string) (*PoolRequest, error) {
	r := &PoolRequest{Ask: pooling.Params{Task: task(f)}}
	switch {
	case f.has("messages"):
		r.Ask.AddSpecialTokens = f.flag("add_special_tokens", false)
		r.Ask.Chat = conversation(f)
		r.Ask.Chat.AddGenerationPrompt = f.flag("add_generation_prompt", false) // no reply follows
	case f.has("input"):
		r.Ask.AddSpecialTokens = f.flag("add_special_tokens", true)
		r.Ask.Inputs = promptsOf(f, "input")
	default:
		f.fail(malformed("input", "Field required: `input` or `messages`."))
	}
	poolingFields(f, &r.Ask)
	r.Ask.Dimensions = f.intOpt("dimensions")
	r.Wire.read(f)
	if f.err != nil {
		return nil, f.err
	}
	r.Wire.Unknown = f.unknown()
	return r, nil
}

// poolingFields reads the fields that all requests to a pooling model share.
func poolingFields(f *fields, a *pooling.Params) {
	a.Model, a.ID = f.str("model"), f.str("request_id")
	a.Truncate = f.intOpt("truncate_prompt_tokens")
	a.TruncationSide = f.str("truncation_side")
	a.Priority = f.intOr("priority", 0)
	a.CacheSalt = f.strOpt("cache_salt")
	for _, name := range []string{"use_activation", "normalize", "activation", "softmax"} {
		if f.has(name) && a.Activate == nil {
			on := f.flag(name, true)
			a.Activate = &on
		}
	}
	if f.has("mm_processor_kwargs") {
		f.fail(chat.Errorf(chat.Invalid, "mm_processor_kwargs", "`mm_processor_kwargs` is not supported by this server: the model reads text. Leave the field out."))
	}
	f.seen["user"] = true // ignored
}

// read reads the form of vectors.
func (w *PoolWire) read(f *fields) {
	w.Encoding, w.Dtype = f.str("encoding_format"), f.str("embed_dtype")
	switch w.Encoding {
	case "":
		w.Encoding = "float"
	case "float", "base64", "bytes", "bytes_only":
	default:
		f.fail(malformed("encoding_format", "`encoding_format` must be float, base64, bytes or bytes_only, got %q.", w.Encoding))
	}
	if w.Dtype == "" || w.Dtype == "float" {
		w.Dtype = "float32"
	}
	if _, ok := dtypes[w.Dtype]; !ok {
		f.fail(malformed("embed_dtype", "`embed_dtype` must be float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2, got %q.", w.Dtype))
	}
	switch order := f.str("endianness"); order {
	case "", "native", "little": // vapp runs on little-endian machines
	case "big":
		w.Big = true
	default:
		f.fail(malformed("endianness", "`endianness` must be native, little or big, got %q.", order))
	}
}
