// Package ranks is the control channel between the ranks of one model. Rank 0 schedules; the other ranks run
// the steps that it sends and decide nothing. The channel is one TCP connection a rank, with frames of a versioned format, and
// both ends prove that they know the same key. It carries the inputs of steps and, from the last pipeline stage, the
// sampled tokens; tensors travel through a backend.Group. It must not know a model, a profile or a backend's kernels.
// Start reading at Listen in leader.go and Join in follower.go.
package ranks
