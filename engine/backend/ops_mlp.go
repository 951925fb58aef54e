package backend

// GLU is a gated activation: Y [rows,cols] = act(gate) · up, where X [rows,2·cols]
// has the columns of gate, then those of up.
type GLU struct {
	X, Y Value
	Activation
}

// Activation is the function of a gated MLP.
type Activation struct {
	Act Act
	// Limit clamps gate from above and up on both sides; 0: none. Alpha multiplies
	// gate inside the sigmoid, and Shift is added to up (gpt-oss: 7, 1.702, 1).
	Limit, Alpha, Shift float32
	// Paired means that gate and up alternate: columns 2i and 2i+1.
	Paired bool
}

// Act is an activation function of one number.
type Act uint8

// The functions.
const (
	SiLU     Act = iota // x · sigmoid(x)
	GELUTanh            // 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715·x³)))
	GELU                // 0.5 · x · (1 + erf(x / √2))
)

// String returns the function's name in model configs.
func (a Act) String() string {
	switch a {
	case GELUTanh:
		return "gelu_pytorch_tanh"
	case GELU:
		return "gelu"
	}
	return "silu"
}

// Activate sets X [rows,cols] to Act(X), in place.
type Activate struct {
	X   Value
	Act Act
}

// Gate sets X [rows,cols] to X · sigmoid(Gate), in place. Gate is [rows,cols], or [rows,1]: one
// factor for each row.
type Gate struct{ X, Gate Value }

// Route selects the Top experts of each row of Logits [rows,E] and computes their weights. Ids
// [rows,Top] I32 has the best first and the lowest id of equals. Weights [rows,Top] F32 is each
// selected expert's Score, divided by their sum if Normalize, times Factor, times Scale[expert].
//
// Experts are compared by their logits; with a Correction or Groups, by F32 scores plus
// Correction[expert]. With Groups, the experts of the TopGroups best groups are compared only.
type Route struct {
	Logits, Ids, Weights Value
	Top                  int
	Score                Score
	Normalize            bool
	Corrected            bool
	Correction           WeightID // [E], if Corrected: added to the scores that select, not to the weights
	// Groups is the number of runs of E/Groups experts, at most MaxGroups; 0: one. A group is as good
	// as the sum of its GroupTop best experts, one or two; 0: two.
	Groups, TopGroups, GroupTop int
	Factor                      float32  // 0: 1
	Scale                       WeightID // [E]; NoWeight: ones
}

// MaxGroups is the maximum of Route.Groups.
const MaxGroups = 32

// Score is the function of a row of logits that gives an expert's weight. kernels/ref and the
// kernels use the same numbers.
type Score uint8

// The scores.
const (
	SelectedSoftmax Score = iota // softmax over the selected experts
	Softmax                      // softmax over all experts
	Sigmoid                      // sigmoid of the expert's logit
	Logit                        // the logit itself
)

// Experts is the mixture of experts: Y [rows,cols] = Σ Weights[k] · MLP of expert Ids[k] of
// X [rows,cols], where an expert's MLP is Down · act(GateUp · X). The sum over k runs in the
// order of Ids. Biases are [E, out].
type Experts struct {
	X, Ids, Weights, Y   Value
	GateUp, Down         WeightID // stacks: [E, 2·width, cols], [E, cols, width]
	GateUpBias, DownBias WeightID // NoWeight: none
	Top, Width           int
	Activation
}
