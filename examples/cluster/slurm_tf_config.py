"""Print the TF_CONFIG of this task, made from the variables of its Slurm step.

Every task of the step is a worker; the tasks of one node take ports in a row.
Standard library only, so that it costs no second start of TensorFlow.

Example, in what `srun` starts:
    export TF_CONFIG="$(python slurm_tf_config.py)"
"""

import json
import os
import re
import subprocess
import sys

# The first port on each node; `train.sbatch` may set it.
PORT = int(os.environ.get("PORT", "8888"))


def tf_config(slurm, hosts, port):
    """Describe the cluster as `keras-transformer train` reads it.

    Args:
        slurm: The environment: `SLURM_STEP_TASKS_PER_NODE`, such as `2(x3),1`,
            and `SLURM_PROCID`, this task's number.
        hosts: The nodes of the step, in Slurm's order.
        port: Of the first task of a node.

    Raises:
        ValueError: If a node has no number of tasks.
    """
    counts = []
    for part in slurm["SLURM_STEP_TASKS_PER_NODE"].split(","):
        tasks, times = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part).groups()
        counts += [int(tasks)] * int(times or 1)
    workers = [
        f"{host}:{port + i}"
        for host, tasks in zip(hosts, counts, strict=True)
        for i in range(tasks)
    ]
    task = {"type": "worker", "index": int(slurm["SLURM_PROCID"])}
    return {"cluster": {"worker": workers}, "task": task}


if __name__ == "__main__":
    nodes = os.environ.get("SLURM_STEP_NODELIST")
    if nodes is None:
        sys.exit("SLURM_STEP_NODELIST is not set; start this by srun.")
    done = subprocess.run(
        ["scontrol", "show", "hostnames", nodes],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(json.dumps(tf_config(os.environ, done.stdout.split(), PORT)))
