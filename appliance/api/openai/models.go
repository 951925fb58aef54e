package openai

// Model is what /v1/models tells of a served name.
type Model struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen int               `json:"max_model_len"`
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

// ModelFacts are the same for all names of a model.
type ModelFacts struct {
	Root     string // where it came from
	ModelLen int    // tokens
	Created  int64  // Unix time
}

// NewModel describes one served name; permission is the id of its permission.
func NewModel(name, permission string, facts ModelFacts) Model {
	return Model{
		ID: name, Object: "model", Created: facts.Created, OwnedBy: "vapp", Root: facts.Root, MaxModelLen: facts.ModelLen,
		Permission: []modelPermission{{
			ID: "modelperm-" + permission, Object: "model_permission", Created: facts.Created,
			AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
		}},
	}
}

// Body is the description as JSON.
func (m Model) Body() []byte { return encode(m) }

type modelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// ModelList is the body of a reply of GET /v1/models.
func ModelList(models []Model) []byte {
	return encode(modelList{"list", models})
}
