// Package kvevents publishes which blocks are in the prefix cache, by vLLM's protocol: a ZeroMQ
// PUB socket whose messages have three frames (topic, sequence number, batch of events), and a
// ROUTER socket that sends past batches again. It must not wait for a subscriber: the engine's loop
// hands over changes and goes on. It knows no profile and no metric.
//
// Sockets speak ZMTP 3.0 (rfc.zeromq.org/spec/23) with the mechanism NULL in zmtp.go. The sockets
// of go-zeromq/zmq4 are not used for it: its PUB writes to all subscribers in turn, so that one which
// does not read stops the others, and it allocates frames of whatever size a peer announces. It
// is the other side in the tests. Start reading at Publisher in publisher.go.
package kvevents
