// Package backend is the boundary between model code and the hardware that runs it.
// It defines recorded programs, the ops in them, the memory they use, and the
// interfaces that a backend implements.
//
// It must not know models, requests or the scheduler, and it must not import a backend.
// Start reading at Opener, Layout and Device in backend.go, then Program in program.go.
//
// # Two halves
//
// A backend has two halves. Its Layout is pure: from Facts alone it computes how many
// bytes a packed weight takes, which kernel reads it and how much workspace a Program
// needs. The planner uses nothing else. Its Device owns memory and threads and computes.
// A Device allocates by the same Layout, so the plan and the allocation cannot differ.
// Interfaces that only some backends implement are in optional.go.
//
// # Ops
//
// A dense decoder takes 16 ops: Tokens, StoreTokens, Embed, Angles, Norm, Linear, Rope,
// Attention, StoreKV, GLU, Gather and Sample on one rank, AllReduce, AllGather, Send and
// Receive on several. There are 43, in one file for each purpose:
//
//	ops.go            17  token ids, rows, elementwise arithmetic, products, sampling, ranks
//	ops_attention.go   4  rotary embedding, attention, the KV cache
//	ops_latent.go      2  multi-head latent attention
//	ops_mlp.go         5  activations, mixture of experts
//	ops_state.go       3  recurrent layers (linear attention, Mamba-2)
//	ops_adapter.go     1  LoRA adapters
//	ops_draft.go       4  a draft head, and the check of its proposals
//	ops_vision.go      5  vision towers
//	ops_grid.go        2  patches in a two-dimensional grid
//
// The other 27 are not variants of the 16. Each has operands, a row count or a side effect
// that none of them has: Route returns expert ids, Conv and DeltaNet update a recurrent
// state, Verify compares sampled tokens with proposals, AvgPool changes the number of
// rows. To compose them of smaller ops would need general indexing ops, more kernels and
// more passes over memory. A variant of an existing op (a window, a soft cap, LayerNorm) is
// a field of that op instead, and RequiredFeature names it. A backend may lack any op or
// field: Layout.Runs then returns ErrUnsupported.
package backend
