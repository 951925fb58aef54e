// All kernels in one unit: what nvcc makes the fatbin of.
#include "embed.cu"
#include "glu.cu"
#include "linear.cu"
#include "norm.cu"
#include "pages.cu"
#include "rope.cu"
