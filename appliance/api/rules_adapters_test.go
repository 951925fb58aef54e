package api

// adapterRules are the rows about LoRA adapters.
var adapterRules = []rule{
	{"18", "POST /v1/load_lora_adapter", "lora_name", "a new one: 200 as text", `{"lora_name":"b","lora_path":"/b"}`, "", "adapter sql", "", 200, "Content-Type: text/plain¦Success: LoRA adapter 'b' added successfully.", ""},
	{"18", "POST /v1/load_lora_adapter", "lora_name", "loaded already: 400", `{"lora_name":"sql","lora_path":"/b"}`, "", "adapter sql", "", 400, `The lora adapter 'sql' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.¦"type":"InvalidUserInput"`, ""},
	{"18", "POST /v1/load_lora_adapter", "load_inplace", "replaces a loaded one", `{"lora_name":"sql","lora_path":"/b","load_inplace":true}`, "", "adapter sql", "", 200, "Success: LoRA adapter 'sql' added successfully.", ""},
	{"18", "POST /v1/load_lora_adapter", "lora_name", "empty: 400", `{"lora_name":"","lora_path":"/b"}`, "", "adapter sql", "", 400, "Both 'lora_name' and 'lora_path' must be provided.", ""},
	{"18", "POST /v1/load_lora_adapter", "lora_path", "missing: 400", `{"lora_name":"b"}`, "", "adapter sql", "", 400, `"param":"lora_path"`, ""},
	{"18", "POST /v1/load_lora_adapter", "lora_path", "without an adapter: 404", `{"lora_name":"b","lora_path":"/none"}`, "", "adapter sql", "", 404, `Loading lora b failed: No adapter found for /none¦"type":"NotFoundError"`, ""},
	{"18", "POST /v1/load_lora_adapter", "lora_name", "a served name: 400", `{"lora_name":"test","lora_path":"/b"}`, "", "adapter sql", "", 400, "would have the name of the served model", ""},
	{"18", "POST /v1/load_lora_adapter", "", "a form that is not served: 400 with the reason", `{"lora_name":"b","lora_path":"/bad"}`, "", "adapter sql", "", 400, "use_dora", ""},
	{"18", "POST /v1/load_lora_adapter", "is_3d_lora_weight", "true: 501", `{"lora_name":"b","lora_path":"/b","is_3d_lora_weight":true}`, "", "adapter sql", "", 501, "is_3d_lora_weight", ""},
	{"18", "POST /v1/load_lora_adapter", "", "not allowed by the profile: 501 with the field", `{"lora_name":"b","lora_path":"/b"}`, "", "fixed adapters", "", 501, "lora.allowRuntimeUpdating", ""},
	{"18", "POST /v1/unload_lora_adapter", "lora_name", "a loaded one: 200 as text", `{"lora_name":"sql"}`, "", "adapter sql", "", 200, "Success: LoRA adapter 'sql' removed successfully.", ""},
	{"18", "POST /v1/unload_lora_adapter", "lora_name", "another: 404", `{"lora_name":"b"}`, "", "adapter sql", "", 404, `The lora adapter 'b' cannot be found.¦"type":"NotFoundError"`, ""},
	{"18", "POST /v1/unload_lora_adapter", "lora_name", "empty: 400", `{"lora_name":""}`, "", "adapter sql", "", 400, "'lora_name' needs to be provided to unload a LoRA adapter.", ""},
	{"18", "POST /v1/chat/completions", "model", "an adapter: the reply has its name", `{M,"model":"sql"}`, "", "adapter sql", "", 200, `"model":"sql"`, ""},
	{"18", "POST /v1/messages", "model", "an adapter: the reply has its name", `{M,"max_tokens":9,"model":"sql"}`, "", "adapter sql", "", 200, `"model":"sql"`, ""},
	{"18", "POST /tokenize", "model", "an adapter", `{"prompt":"x","model":"sql"}`, "", "adapter sql", "", 200, `"count":`, ""},
	{"18", "POST /v1/completions", "model", "an adapter that is not loaded: 404", `{"prompt":"x","model":"b"}`, "", "adapter sql", "", 404, "The model `b` does not exist.", ""},
	{"18", "GET /v1/models", "root, parent", "of an adapter: its folder, the first served name", "", "", "adapter sql", "", 200, `"id":"sql"¦"root":"sql","parent":"test","max_model_len":null`, ""},
}
