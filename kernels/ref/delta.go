package ref

import "math"

// Conv returns the causal convolution of one channel at a token with value x, plus a bias, followed
// by silu. state has the kernel−1 values before x, the oldest first; Conv appends x and drops
// the oldest. w is the channel's kernel, the newest value's weight last. Sums are float64,
// from the oldest value on.
func Conv(w, state []float32, x, bias float32) float32 {
	sum := float64(bias)
	for i, s := range state {
		sum += float64(w[i]) * float64(s)
	}
	sum += float64(w[len(w)-1]) * float64(x)
	copy(state, state[1:])
	state[len(state)-1] = x
	return SiLU(float32(sum))
}

// DeltaArgs are the operands of Delta: one value head at one token.
type DeltaArgs struct {
	Q, K  []float32 // [KeyDim], before normalisation
	V     []float32 // [ValueDim]
	B, A  float32   // inputs of β and of the decay
	ALog  float32
	Bias  float32   // dt_bias
	State []float32 // [KeyDim, ValueDim], updated
	Y     []float32 // [ValueDim]
}

// deltaEps is added to the squared length of a vector before normalisation (transformers:
// l2norm).
const deltaEps = 1e-6

// Delta computes one step of the gated delta rule (transformers:
// torch_recurrent_gated_delta_rule), with float64 sums: S ← e^g·S; S ← S + k·(β·(v − Sᵀk))ᵀ;
// y = Sᵀq/√KeyDim, with g = −e^ALog · softplus(A + Bias) and β = sigmoid(B), where q and k
// are normalised to length one.
func Delta(a DeltaArgs) {
	n, d := len(a.K), len(a.V)
	iq, ik := inverseLength(a.Q)/math.Sqrt(float64(n)), inverseLength(a.K)
	g := math.Exp(-math.Exp(float64(a.ALog)) * softplus(float64(a.A+a.Bias)))
	beta := 1 / (1 + math.Exp(-float64(a.B)))
	for i := range a.State {
		a.State[i] = float32(float64(a.State[i]) * g)
	}
	for j := range d {
		seen := 0.0
		for i := range n {
			seen += float64(a.State[i*d+j]) * float64(a.K[i]) * ik
		}
		delta := beta * (float64(a.V[j]) - seen)
		y := 0.0
		for i := range n {
			s := float64(a.State[i*d+j]) + float64(a.K[i])*ik*delta
			a.State[i*d+j] = float32(s)
			y += s * float64(a.Q[i]) * iq
		}
		a.Y[j] = float32(y)
	}
}

// Mamba2Args are the operands of Mamba2: one head at one token.
type Mamba2Args struct {
	X             []float32 // [HeadDim]
	B, C          []float32 // [StateDim]
	Dt            float32
	ALog, Bias, D float32   // Bias: dt_bias
	State         []float32 // [HeadDim, StateDim], updated
	Y             []float32 // [HeadDim]
}

// Mamba2 computes one step of a state space model (transformers: mamba2_selective_state_update), with
// float64 sums: S ← e^(−e^ALog·dt)·S + dt·x·Bᵀ; y = S·C + D·x, with dt = softplus(Dt + Bias).
func Mamba2(a Mamba2Args) {
	dt := softplus(float64(a.Dt + a.Bias))
	keep := math.Exp(-math.Exp(float64(a.ALog)) * dt)
	for i, x := range a.X {
		y, in := float64(a.D)*float64(x), dt*float64(x)
		for j, b := range a.B {
			s := &a.State[i*len(a.B)+j]
			*s = float32(float64(*s)*keep + in*float64(b))
			y += float64(*s) * float64(a.C[j])
		}
		a.Y[i] = float32(y)
	}
}

func inverseLength(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return 1 / math.Sqrt(sum+deltaEps)
}

// softplus returns log(1 + e^x), and x above 20 as PyTorch does.
func softplus(x float64) float64 {
	if x > 20 {
		return x
	}
	return math.Log1p(math.Exp(x))
}
