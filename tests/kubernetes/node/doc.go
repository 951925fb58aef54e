// Package node runs the pods of a control plane on this machine, as a kubelet, a network plugin,
// kube-proxy and a DNS server do together. Containers are processes in namespaces of their own
// (mount, PID, IPC, UTS; network and memory cgroup by pod); an image is a file beside the host's
// /usr. It refuses what it cannot do by the pod's status. It must not know vapp.
//
// Network has the bridge, the addresses, the cluster's DNS and the proxy of Services. Node
// registers a node and starts a pod for each that is bound to it. Start reading at Start.
package node
