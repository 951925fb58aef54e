package sample

// Limits are what a step's buffers and the model allow a request.
type Limits struct {
	Vocab    int
	Logprobs int // top logprobs at most
	Bias     int // logit edits a row may carry
}

// ParamError says which parameter is wrong, in the words of the API.
type ParamError struct {
	Param string
	Value any
	Text  string
}

func (e *ParamError) Error() string { return e.Text }

// Validate checks every rule that the parameters alone decide. The error is a
// *ParamError.
func (p *Params) Validate(l Limits) error { return nil }

// ValidateN checks how many choices a request with these parameters asks for.
func (p *Params) ValidateN(n int) error { return nil }

// ChoiceSeed is the seed of a request's choice: seed itself for the first.
func ChoiceSeed(seed uint64, choice int) uint64 { return seed }
