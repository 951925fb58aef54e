package openai

// Model is the entry of a served name in /v1/models.
type Model struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen *int              `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

// ModelFacts are the attributes that all served names of a model share.
type ModelFacts struct {
	Root     string // source of the model
	ModelLen int    // tokens
	Created  int64  // Unix time
}

// NewModel returns the entry of a served name; permission is the id of its permission.
func NewModel(name, permission string, facts ModelFacts) Model {
	return Model{
		ID: name, Object: "model", Created: facts.Created, OwnedBy: "vapp", Root: facts.Root, MaxModelLen: &facts.ModelLen,
		Permission: []modelPermission{{
			ID: "modelperm-" + permission, Object: "model_permission", Created: facts.Created,
			AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
		}},
	}
}

// NewAdapter returns the entry of a LoRA adapter: its folder is the root, the first served name the
// parent. As in vLLM, it has no max_model_len.
func NewAdapter(name, parent, permission string, facts ModelFacts) Model {
	m := NewModel(name, permission, facts)
	m.Parent, m.MaxModelLen = &parent, nil
	return m
}

// Body returns the entry as JSON.
func (m Model) Body() []byte { return encode(m) }

type modelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// ModelList returns the body of a reply of GET /v1/models.
func ModelList(models []Model) []byte {
	return encode(modelList{"list", models})
}
