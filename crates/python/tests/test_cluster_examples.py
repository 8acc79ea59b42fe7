"""The recipes for clusters in examples/cluster, as far as they can be checked without one: they parse, what they
name is there, and every flag is one that the program has. Nothing here runs Slurm or Kubernetes."""

from __future__ import annotations

import faulthandler
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[3] / "examples" / "cluster"

# Fields that an object of each kind must have, after the API reference of Kubernetes 1.30.
KINDS = {
    ("v1", "Service"): {"selector", "ports"},
    ("apps/v1", "StatefulSet"): {"serviceName", "selector", "template", "replicas"},
    ("batch/v1", "Job"): {"template", "completions", "parallelism"},
}


def objects() -> dict[tuple[str, str], dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
    documents = list(yaml.safe_load_all((HERE / "kubernetes.yaml").read_text()))
    found = {(it["kind"], it["metadata"]["name"]): it for it in documents}
    assert len(found) == len(documents), "two objects have one name"
    return found


def pods(kinds: dict[tuple[str, str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for it in kinds.values():
        if "template" in it["spec"]:
            yield it["spec"]["template"]


def test_the_manifest_has_what_kubernetes_asks_for() -> None:
    for it in objects().values():
        missing = KINDS[it["apiVersion"], it["kind"]] - it["spec"].keys()
        assert not missing, (it["metadata"], missing)
    for pod in pods(objects()):
        spec = pod["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        mounted = set()
        for container in spec["initContainers"] + spec["containers"]:
            assert {"name", "image", "command"} <= container.keys()
            ports = {port["name"] for port in container.get("ports", [])}
            probe = container.get("readinessProbe", {}).get("tcpSocket", {}).get("port")
            assert probe is None or probe in ports, probe
            mounted |= {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == volumes, "every volume is mounted, and every mount is of a volume"


def test_names_of_the_manifest_meet() -> None:
    kinds = objects()
    agents = kinds["StatefulSet", "bothends-agent"]["spec"]
    labels = agents["template"]["metadata"]["labels"]
    assert agents["selector"]["matchLabels"] == labels
    service = kinds["Service", agents["serviceName"]]["spec"]
    assert service["clusterIP"] == "None", "the name has the addresses of all agents"
    assert service["selector"].items() <= labels.items()
    (agent,) = agents["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in agent["ports"]}
    assert {port["name"]: port["port"] for port in service["ports"]} == ports
    arguments = "\n".join(agent["args"])
    assert f":{ports['agent']}\n" in arguments and f":{ports['metrics']}\n" in arguments
    train = kinds["Job", "train"]["spec"]["template"]["spec"]
    url = f"pool+dns://{agents['serviceName']}:{ports['agent']}?via=tcp+noise"
    assert f"--csd={url}" in train["containers"][0]["args"]
    # The first pod of the job is found by its own name and that of the service.
    assert ("Service", train["subdomain"]) in kinds
    rendezvous = f"--rdzv-endpoint=train-0.{train['subdomain']}:29400"
    assert rendezvous in train["containers"][0]["args"]


def flags_of(*command: str) -> set[str]:
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", done.stdout))


def used(text: str, program: str) -> set[str]:
    """The flags behind a program's name, up to the end of its command."""
    text = re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.partition(program)[2].partition("|")[0] for line in text.splitlines()]
    return {flag for line in lines for flag in re.findall(r"(?<!\S)--[a-z][a-z-]+", line)}


def test_agents_are_given_flags_that_they_have() -> None:
    program = shutil.which("bothends-agent")
    if program is None:
        pytest.skip("there is no bothends-agent in the path")
    known = flags_of(program)
    flags = used((HERE / "agents.sbatch").read_text(), "bothends-agent ")
    for pod in pods(objects()):
        for container in pod["spec"]["containers"]:
            if container["command"] == ["bothends-agent"]:
                flags |= {argument.partition("=")[0] for argument in container["args"]}
    assert {"--listen", "--data-root", "--key-file"} <= flags <= known


def test_the_training_script_is_given_flags_that_it_has() -> None:
    text = (HERE / "train_elastic.py").read_text()
    known = set(re.findall(r'add_argument\("(--[a-z-]+)"', text))
    flags = used((HERE / "train.sbatch").read_text(), "train_elastic.py ")
    for pod in pods(objects()):
        for container in pod["spec"]["containers"]:
            if container["command"] == ["torchrun"]:
                after = container["args"].index("train_elastic.py") + 1
                own = container["args"][after:]
                flags |= {it.partition("=")[0] for it in own if it.startswith("--")}
    assert {"--checkpoint", "--csd", "--key-file"} <= flags <= known


def test_torchrun_is_started_so_that_nodes_may_join() -> None:
    variable = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    for script in ["train.sbatch", "train_elastic.py"]:
        text = (HERE / script).read_text()
        assert 0 < text.find(f"export {variable}=1\n") < text.find("torchrun --nnodes"), script
    containers = [container for pod in pods(objects()) for container in pod["spec"]["containers"]]
    [train] = [container for container in containers if container["command"] == ["torchrun"]]
    assert {"name": variable, "value": "1"} in train["env"]


@pytest.mark.parametrize("script", ["agents.sbatch", "train.sbatch"])
def test_batch_scripts_are_scripts(script: str) -> None:
    subprocess.run(["bash", "-n", HERE / script], check=True)
    text = (HERE / script).read_text()
    options = re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)
    assert options and all(re.fullmatch(r"--[a-z-]+(=\S+)?", option) for option in options)
    # Slurm reads options up to the first command.
    assert text.rindex("#SBATCH") < text.index("set -euo pipefail")


def torchrun(ranks: int, data: Path, folder: Path, *more: str) -> None:
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    line += [f"--nproc-per-node={ranks}", str(HERE / "train_elastic.py"), str(data)]
    line += ["--checkpoint", str(folder / "run.pt"), "--samples", str(folder / "samples.txt"), "--epochs", "1"]
    line += ["--batch-size", "4", "--save-every", "3", *more]
    done = subprocess.run(line, capture_output=True, text=True, timeout=190)
    assert done.returncode == 0, done.stderr


def test_elastic_training_uses_every_sample_once(many: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    # Twelve processes import PyTorch.
    faulthandler.dump_traceback_later(600, exit=True)
    torchrun(3, many, tmp_path, "--stop-after", "12")  # 144 samples
    torchrun(2, many, tmp_path, "--stop-after", "12")  # 96 more
    torchrun(4, many, tmp_path)
    lines = (tmp_path / "samples.txt").read_text().splitlines()
    seen = [int(id) for line in lines for id in line.split()[2:]]
    assert len(seen) == len(set(seen)) == 144 + 96 + 256, "260 are left, and 16 are a step"
