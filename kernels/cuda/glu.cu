// Gated activations and elementwise functions.
#include "glu.cuh"
#include "rows.cuh"

// glu: a thread for each element of y.
KERNEL(glu, GLUArgs, 256) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)a.rows * a.cols) return;
  long long r = i / a.cols, c = i % a.cols;
  Numbers x = Numbers{a.x, a.x_bf16 != 0} + 2 * r * a.cols;
  a.y[i] = a.paired ? gated_activation(a, x[2 * c], x[2 * c + 1]) : gated_activation(a, x[c], x[a.cols + c]);
}

// glu4 is glu with four columns for each thread: cols is a multiple of 4 and not paired.
KERNEL(glu4, GLUArgs, 256) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  int across = a.cols / 4;
  if (i >= (long long)a.rows * across) return;
  long long r = i / across, c = i % across;
  Numbers x = Numbers{a.x, a.x_bf16 != 0} + 2 * r * a.cols;
  float4 g = x.four(4 * c), u = x.four(a.cols + 4 * c);
  ((float4 *)a.y)[i] = make_float4(gated_activation(a, g.x, u.x), gated_activation(a, g.y, u.y), gated_activation(a, g.z, u.z), gated_activation(a, g.w, u.w));
}

struct ElementsArgs {
  float *x;           // [n], in place
  const float *gate;  // [n], for gate; with cols: [n/cols]
  long long n;
  float cap;  // for softcap
  int act;    // for activate
  int cols, pad;  // for gate: the columns of a row that has one factor; 0: each number has its own
};

KERNEL(activate, ElementsArgs, 256) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.n) a.x[i] = activation(a.act, a.x[i]);
}

KERNEL(gate, ElementsArgs, 256) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.n) a.x[i] *= sigmoid(a.gate[a.cols ? i / a.cols : i]);
}

KERNEL(softcap, ElementsArgs, 256) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.n) a.x[i] = a.cap * tanhf(a.x[i] / a.cap);
}
