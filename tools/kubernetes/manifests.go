package kubernetes

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// object is a part of a manifest. yaml.v3 sorts its keys.
type object = map[string]any

// groupPort is where rank 0 listens for the others, the default of the chart.
const groupPort = 29555

// leaveSeconds is how long a pod that ends still takes requests: proxies and routers have left it
// by then.
const leaveSeconds = 5

// Manifests returns plain manifests that serve what the chart would serve with these values: a
// ServiceAccount, the profile's ConfigMap, a Service, a PodDisruptionBudget, a NetworkPolicy, and a
// Deployment or, with ranks, a LeaderWorkerSet. The objects that the chart has as options are left
// out.
func (v *Values) Manifests() ([]byte, error) {
	var b bytes.Buffer
	for _, o := range []object{v.account(), v.configMap(), v.service(), v.budget(), v.network(), v.workload()} {
		text, err := marshal(o)
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

func (v *Values) selector() object {
	return object{"app.kubernetes.io/name": "vapp", "app.kubernetes.io/instance": v.name}
}

// of returns an object with its metadata.
func (v *Values) of(api, kind, name string, rest object) object {
	labels := v.selector()
	labels["app.kubernetes.io/version"] = v.Image.Tag
	labels["app.kubernetes.io/managed-by"] = "vapp"
	out := object{"apiVersion": api, "kind": kind, "metadata": object{"name": name, "labels": labels}}
	maps.Copy(out, rest)
	return out
}

func (v *Values) account() object {
	return v.of("v1", "ServiceAccount", v.name, object{"automountServiceAccountToken": false})
}

func (v *Values) configMap() object {
	return v.of("v1", "ConfigMap", v.name+"-profile", object{"data": v.Profile.Files})
}

func (v *Values) service() object {
	selector := v.selector()
	if v.Ranks != nil {
		selector["vapp.dev/role"] = "leader"
	}
	return v.of("v1", "Service", v.name, object{"spec": object{
		"type": "ClusterIP", "selector": selector,
		"ports": []object{{"name": "http", "port": 8000, "targetPort": "http", "appProtocol": "http"}},
	}})
}

func (v *Values) budget() object {
	return v.of("policy/v1", "PodDisruptionBudget", v.name, object{"spec": object{
		"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": object{"matchLabels": v.selector()},
	}})
}

// network lets pods of the namespace reach the API and what else the profile listens at, ranks each other, and the server DNS, what the
// profile calls and, if it pulls its model, HTTPS.
func (v *Values) network() object {
	own := []object{{"podSelector": object{"matchLabels": v.selector()}}}
	open := []object{{"port": "http", "protocol": "TCP"}}
	var calls []int
	if v.Network != nil {
		for _, p := range v.Network.Listens {
			open = append(open, object{"port": p, "protocol": "TCP"})
		}
		calls = v.Network.Calls
	}
	in := []object{{"ports": open, "from": []object{{"podSelector": object{}}}}}
	out := []object{{"ports": []object{{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}}}}
	if v.Ranks != nil {
		in, out = append(in, object{"from": own}), append(out, object{"to": own})
	}
	if v.Model.Pull && !slices.Contains(calls, 443) {
		calls = append(slices.Clone(calls), 443)
	}
	for _, p := range calls {
		out = append(out, object{"ports": []object{{"port": p, "protocol": "TCP"}}})
	}
	return v.of("networking.k8s.io/v1", "NetworkPolicy", v.name, object{"spec": object{
		"podSelector": object{"matchLabels": v.selector()}, "policyTypes": []string{"Ingress", "Egress"}, "ingress": in, "egress": out,
	}})
}

func (v *Values) workload() object {
	if v.Ranks == nil {
		return v.of("apps/v1", "Deployment", v.name, object{"spec": object{
			"replicas": v.Replicas, "progressDeadlineSeconds": 2*v.Pod.LoadSeconds + 60,
			"strategy": object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": 0, "maxSurge": 1}},
			"selector": object{"matchLabels": v.selector()}, "template": v.pod(""),
		}})
	}
	// The controller makes a headless Service of the set's name, in which rank 0 has its address.
	return v.of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", v.name+"-ranks", object{"spec": object{
		"replicas": v.Replicas, "startupPolicy": "LeaderCreated",
		"rolloutStrategy": object{"type": "RollingUpdate", "rollingUpdateConfiguration": object{"maxUnavailable": 0, "maxSurge": 1}},
		"leaderWorkerTemplate": object{
			"size": v.Ranks.Size, "restartPolicy": "RecreateGroupOnPodRestart",
			"leaderTemplate": v.pod("leader"), "workerTemplate": v.pod("worker"),
		},
	}})
}

// pod returns the template of a pod. role is leader or worker of a group, "" of a server of one pod.
func (v *Values) pod(role string) object {
	labels, notes := v.selector(), object{"vapp.dev/plan": v.Plan.Hash, "vapp.dev/planned-memory": v.Plan.Memory}
	if role != "" {
		labels["vapp.dev/role"] = role
	}
	if v.Plan.Lock != "" {
		notes["vapp.dev/lock"] = v.Plan.Lock
	}
	spec := object{
		"serviceAccountName": v.name, "automountServiceAccountToken": false, "enableServiceLinks": false,
		"terminationGracePeriodSeconds": v.Pod.DrainSeconds + leaveSeconds + 15,
		"securityContext": object{
			"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
			"fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": object{"type": "RuntimeDefault"},
		},
		"containers": []object{v.server(role)},
		"volumes":    v.volumes(),
	}
	if v.Pod.Affinity != nil {
		spec["affinity"] = v.Pod.Affinity
	}
	if v.Model.Pull {
		spec["initContainers"] = []object{v.container("pull", []string{"pull", profileFolder + "/" + v.Profile.File})}
	}
	return object{"metadata": object{"labels": labels, "annotations": notes}, "spec": spec}
}

// server returns the container of vapp up.
func (v *Values) server(role string) object {
	args := []string{"up", profileFolder + "/" + v.Profile.File}
	if role == "leader" {
		args = append(args, "--leader", fmt.Sprintf("$(POD_IP):%d", groupPort))
	}
	c := v.container("vapp", args)
	if role == "worker" { // only rank 0 has an API
		return c
	}
	ports := []object{{"name": "http", "containerPort": v.Pod.Port}}
	if role == "leader" {
		ports = append(ports, object{"name": "ranks", "containerPort": groupPort})
	}
	c["ports"] = ports
	probe := func(route string, period, timeout, failures int) object {
		return object{"httpGet": object{"path": route, "port": "http"}, "periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures}
	}
	c["startupProbe"] = probe("/readyz", 2, 2, (v.Pod.LoadSeconds+1)/2)
	c["readinessProbe"] = probe("/readyz", 2, 2, 2)
	c["lifecycle"] = object{"preStop": object{"sleep": object{"seconds": leaveSeconds}}}
	c["livenessProbe"] = probe("/livez", 10, 5, 6)
	return c
}

// container returns what the containers of a pod have in common.
func (v *Values) container(name string, args []string) object {
	env := []object{{"name": "HOME", "value": "/tmp"}, {"name": "HF_HOME", "value": v.Model.MountPath}}
	if v.Ranks != nil {
		env = append(env,
			object{"name": "VAPP_RANKS_KEY", "valueFrom": object{"secretKeyRef": object{"name": v.Ranks.KeySecret, "key": "key"}}},
			object{"name": "POD_IP", "valueFrom": object{"fieldRef": object{"fieldPath": "status.podIP"}}})
	}
	models := object{"name": "model", "mountPath": v.Model.MountPath}
	if v.Model.ReadOnly {
		models["readOnly"] = true
	}
	mounts := []object{{"name": "profile", "mountPath": profileFolder, "readOnly": true}, models, {"name": "tmp", "mountPath": "/tmp"}}
	if v.Pod.Swap != "" {
		mounts = append(mounts, object{"name": "swap", "mountPath": "/var/tmp"})
	}
	if v.Pod.SharedMemory != "" {
		mounts = append(mounts, object{"name": "shm", "mountPath": "/dev/shm"})
	}
	return object{
		"name": name, "image": v.Image.Repository + ":" + v.Image.Tag, "imagePullPolicy": "IfNotPresent", "args": args, "env": env,
		"securityContext": object{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
			"capabilities": object{"drop": []string{"ALL"}},
		},
		"resources": v.Pod.Resources, "volumeMounts": mounts,
	}
}

func (v *Values) volumes() []object {
	models := object{"name": "model", "emptyDir": object{}}
	if v.Model.Claim != "" {
		models = object{"name": "model", "persistentVolumeClaim": object{"claimName": v.Model.Claim}}
	}
	out := []object{
		{"name": "profile", "configMap": object{"name": v.name + "-profile"}},
		models,
		{"name": "tmp", "emptyDir": object{}},
	}
	if v.Pod.Swap != "" {
		out = append(out, object{"name": "swap", "emptyDir": object{"sizeLimit": v.Pod.Swap}})
	}
	if v.Pod.SharedMemory != "" {
		out = append(out, object{"name": "shm", "emptyDir": object{"medium": "Memory", "sizeLimit": v.Pod.SharedMemory}})
	}
	return out
}
