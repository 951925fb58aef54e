"""Runs the two ranks of a profile in two bundles of a Ray cluster. SIGTERM and Ctrl-C drain.

    python ray_ranks.py [--gpus] VAPP up PROFILE [FLAG...]
"""
import os, secrets, signal, subprocess, sys
import ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Bundle


class Node:
    """The node of a bundle, on which it runs one process."""
    def run(self, command, **env):
        self.process = subprocess.Popen(command, env={**os.environ, **env})
        return self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)


def agent(host, *command):
    """mpirun calls this in place of ssh."""
    ray.init(address=os.environ["VAPP_RAY"], namespace=os.environ["VAPP_RAY_NAMESPACE"], log_to_driver=False)
    return ray.get(ray.get_actor(host).run.remote(["sh", "-c", " ".join(command)]))


def main(command, gpus):
    namespace = "vapp-" + secrets.token_hex(8)
    ray.init(namespace=namespace)
    group = placement_group([{"CPU": 1, "GPU": 1} if gpus else {"CPU": 1}] * 2, strategy="SPREAD")
    ray.get(group.ready(), timeout=60)
    address = {n["NodeID"]: n["NodeManagerAddress"] for n in ray.nodes()}
    hosts = [address[id] for _, id in sorted(placement_group_table(group)["bundles_to_node_id"].items())]
    names = ["first", hosts[1]]  # agent finds the node by mpirun's name for it
    nodes = [ray.remote(Node).options(name=names[rank], num_cpus=1, num_gpus=int(gpus), max_concurrency=4,
                                      scheduling_strategy=Bundle(group, placement_group_bundle_index=rank)).remote() for rank in range(2)]
    signal.signal(signal.SIGTERM, lambda *_: nodes[0].signal.remote(signal.SIGUSR1))
    signal.signal(signal.SIGINT, lambda *_: nodes[0].signal.remote(signal.SIGUSR1))
    if gpus:  # NCCL needs rank 0's address and a key
        env = dict(WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR=hosts[0], MASTER_PORT="29555", VAPP_RANKS_KEY=secrets.token_hex(32))
        return max(map(abs, ray.get([n.run.remote(command, RANK=str(rank), **env) for rank, n in enumerate(nodes)])))
    # Ranks on CPUs are one MPI world, which mpirun makes: on the first node, and by agent on the other.
    start = ["mpirun", "--allow-run-as-root", "--host", ",".join(h + ":1" for h in hosts), "--bind-to", "none", "--leave-session-attached",
             "--mca", "plm_rsh_agent", f"{sys.executable} {os.path.abspath(__file__)} --agent"]
    return ray.get(nodes[0].run.remote(start + command, VAPP_RAY=ray.get_runtime_context().gcs_address, VAPP_RAY_NAMESPACE=namespace))


if sys.argv[1:2] == ["--agent"]:
    sys.exit(agent(*sys.argv[2:]))
gpus = sys.argv[1:2] == ["--gpus"]
sys.exit(main(sys.argv[1 + gpus:], gpus))
