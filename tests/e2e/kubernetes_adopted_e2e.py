"""Manifests that people have: other projects' kinds with --adopt, and pods by hand as torchelastic's guide has them.

The images are played: what they hold is named in `examples_images`. Their launcher is ours under the name of theirs, as
it takes the same flags and PET_ variables, and starts without a second of imports.
"""
import subprocess

import yaml

import harness
from harness import ROOT, RUBATO, SCRIPTS
from kube_operator import IMAGE, OperatorCase

DATA = ROOT / "tests/data/kubernetes"
EXAMPLES = ROOT / "deploy/examples"


ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT, TIME, COUNT = {"type": "string"}, {"type": "string", "format": "date-time"}, {"type": "integer"}


def status_of_common_jobs(*, typed):
    """As the projects that are built on Kubeflow's common controller have it: what they do not name is dropped."""
    names = {name: TEXT for name in ("type", "status", "reason", "message")}
    condition = {"type": "object", "required": ["status", "type"],
                 "properties": names | {"lastTransitionTime": TIME, "lastUpdateTime": TIME}}
    counts = {"type": "object", "properties": {name: COUNT for name in ("active", "failed", "succeeded")}}
    return {"type": "object", "required": ["conditions", "replicaStatuses"], "properties": {
        "conditions": {"type": "array", "items": condition}, "completionTime": TIME, "startTime": TIME,
        "lastReconcileTime": TIME,
        "replicaStatuses": {"type": "object", "additionalProperties": counts} if typed else ANY}}


# What the projects' own CRDs demand, where it touches us: torchelastic's has no status subresource.
SCHEMAS = {
    "elastic.pytorch.org": ({}, {"type": "object", "properties": {
        "spec": ANY | {"required": ["rdzvEndpoint", "replicaSpecs"], "properties": {
            "rdzvEndpoint": TEXT, "minReplicas": COUNT | {"minimum": 1}, "maxReplicas": COUNT, "replicaSpecs": ANY}},
        "status": status_of_common_jobs(typed=False)}}),
    "kubeflow.org": ({"status": {}}, {"type": "object", "properties": {
        "spec": ANY, "status": status_of_common_jobs(typed=True)}}),
    "adaptdl.petuum.com": ({"status": {}}, {"type": "object", "required": ["spec"], "properties": {
        "metadata": {"type": "object", "properties": {"name": TEXT | {"maxLength": 63}}},
        "spec": {"type": "object", "required": ["template"], "properties": {
            "minReplicas": COUNT | {"minimum": 0}, "maxReplicas": COUNT | {"minimum": 1},
            "preemptible": {"type": "boolean"}, "template": ANY}},
        "status": ANY}}),
}


def crd(group, version, kind, plural):
    subresources, schema = SCHEMAS[group]
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"}, "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": True, "storage": True, "subresources": subresources,
                              "schema": {"openAPIV3Schema": schema}}]}}


class Adopted(OperatorCase):
    def examples_images(self):
        script = self.folder / "main.py"
        script.write_text("import runpy, sys\nsys.argv[1:] = ['/out']\n"
                          f"runpy.run_path({str(SCRIPTS / 'steps.py')!r}, run_name='__main__')\n")
        python = self.folder / "python"
        python.write_text('#!/bin/sh\n[ "$1 $2" = "-m torch.distributed.run" ] || exec /usr/bin/python3 "$@"\n'
                          'shift 2\nexec /usr/local/bin/rubato run "$@"\n')
        python.chmod(0o755)
        common = {"/out": self.folder, "/usr/local/bin/rubato": RUBATO, "/usr/local/bin/python": python}
        env = {"PYTHON_EXEC": "/usr/bin/python3"}
        self.nodes.image("torchelastic/examples", common | {"/workspace/examples/imagenet/main.py": script}, env=env,
                         entrypoint=["python", "-m", "torch.distributed.run"])
        self.nodes.image("kubeflow/pytorch-elastic-example-echo", common | {"/workspace/echo.py": script}, env=env,
                         workdir="/workspace")
        self.nodes.image("pytorch/pytorch", common, env=env)
        self.nodes.image("registry.example.com/training-with-rubato", common | {"/workspace/main.py": script}, env=env,
                         workdir="/workspace")
        tools = self.folder / "tools"
        tools.mkdir()
        for name, text in {"yum": "exit 0", "wget": ": >$(basename $1)",
                           "unzip": "mkdir -p ${3:-.}/tiny-imagenet-200/train"}.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        for image in ("centos", "busybox"):
            self.nodes.image(image, {f"/usr/local/sbin/{path.name}": path for path in tools.iterdir()})
        self.nodes.image("quay.io/coreos/etcd", {"/usr/local/bin/etcd": "/usr/bin/etcd"})

    def apply_crd(self, *words):
        self.kube.apply(crd(*words))
        self.kube.kubectl("wait", "--for=condition=established", "crd", f"{words[3]}.{words[0]}")

    def true_conditions(self, path):
        job = self.get(path) or {}
        return [one["type"] for one in job.get("status", {}).get("conditions", ()) if one["status"] == "True"]

    def test_jobs_of_torchelastic_and_kubeflow_run_unchanged(self):
        self.examples_images()
        self.nodes.add_node("gpu1", gpus=4)
        self.nodes.add_node("gpu2", gpus=4)
        self.install_crd()
        self.apply_crd("elastic.pytorch.org", "v1alpha1", "ElasticJob", "elasticjobs")
        self.apply_crd("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
        self.kube.kubectl("create", "namespace", "elastic-job")
        self.kube.kubectl("apply", "-n", "elastic-job", "-f", DATA / "etcd.yaml")
        self.kube.kubectl("apply", "-f", DATA / "torchelastic.yaml", "-f", DATA / "pytorchjob.yaml")
        self.assert_left_alone()
        self.operator("--adopt", "elasticjobs.elastic.pytorch.org", "--adopt", "pytorchjobs.kubeflow.org")
        torch = "/apis/elastic.pytorch.org/v1alpha1/namespaces/elastic-job/elasticjobs/imagenet"
        kubeflow = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/elastic-example-echo"
        self.wait_for(lambda: "Running" in self.true_conditions(torch), "torchelastic's job to run")
        self.wait_for(lambda: "Running" in self.true_conditions(kubeflow), "Kubeflow's job to run")
        self.wait_for_workers(4, lambda line: line["world"] == 4)  # two pods with two processes each
        self.wait_for_workers(2, lambda line: line["world"] == 2 and line["local_rank"] == 0)
        pods = {pod["metadata"]["name"]: pod for pod in self.api.get("/api/v1/namespaces/elastic-job/pods")["items"]}
        args = pods["imagenet-worker-1"]["spec"]["containers"][0]["args"]
        self.assertEqual(args[:4], ["--rdzv_backend=etcd", "--rdzv_endpoint=etcd-service:2379", "--rdzv_id=imagenet",
                                    "--nnodes=1:2"])
        self.kube.kubectl("patch", "pytorchjob", "elastic-example-echo", "--type=merge", "-p",
                          '{"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}}')
        self.wait_for_workers(3, lambda line: line["world"] == 3)
        self.order("finish")
        for path in (torch, kubeflow):
            self.wait_for(lambda: "Succeeded" in self.true_conditions(path), f"{path} to succeed")

    def assert_left_alone(self):
        """Without --adopt."""
        other = self.operator()
        self.kube.apply(self.job("ours", 1))
        self.wait_for_world(1)
        self.assertEqual(set(self.pods()), {"ours-worker-0"})
        other.kill()
        self.kube.kubectl("delete", "elasticjob", "ours")

    def test_another_controller_s_jobs_are_left_alone_with_a_word(self):
        self.examples_images()
        self.install_crd()
        self.apply_crd("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
        self.kube.kubectl("apply", "-f", DATA / "pytorchjob.yaml")
        job = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/elastic-example-echo"
        status = f"{job}/status?fieldManager=training-operator"
        created = {"type": "Created", "status": "True"}
        self.api.merge(status, {"status": {"conditions": [created], "replicaStatuses": {"Worker": {"active": 1}}}})
        operator = self.operator("--adopt", "pytorchjobs.kubeflow.org")
        self.wait_for(lambda: "Blocked" in self.true_conditions(job), "the condition")
        self.assertIn("Created", self.true_conditions(job), "theirs stay")
        self.wait_for(lambda: "OtherController" in self.kube.kubectl("get", "events"), "the event")
        told = self.rubato("why", "--kubernetes", "elastic-example-echo").stdout
        self.assertIn("training-operator writes its status", told)
        self.assertIn("without --adopt pytorchjobs.kubeflow.org", told)
        # Others are run, meanwhile and after a restart.
        operator.kill()
        operator.start()
        self.kube.apply(self.job("ours", 1))
        self.wait_for_world(1)
        self.assertEqual(set(self.pods()), {"ours-worker-0"})

    def test_a_deleted_pod_neither_fails_nor_ends_its_job(self):
        """Exit code 1 at SIGTERM, as torchrun's, under ExitCode, for which that is final; and one that leaves well."""
        self.install_crd()
        self.apply_crd("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
        manifest = yaml.safe_load((DATA / "pytorchjob.yaml").read_text())
        worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
        worker |= {"replicas": 3, "restartPolicy": "ExitCode"}
        code = "case $HOSTNAME in *-2) exit 0;; *) exit 1;; esac"
        worker["template"]["spec"] = {"containers": [{"name": "pytorch", "image": "test/any", "command": [
            "sh", "-c", f"trap '{code}' TERM; while :; do sleep 0.05; done"]}]}
        self.kube.apply(manifest)
        self.operator("--adopt", "pytorchjobs.kubeflow.org")
        job = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/elastic-example-echo"
        name = "elastic-example-echo"
        for index in range(3):
            self.wait_for_phase(f"{name}-worker-{index}", "Running")
        self.assertIn("1 workers wanted, 3 before", self.rubato("k8s", "scale", name, "1").stdout)
        all_of = "/api/v1/namespaces/default/pods?labelSelector=rubato.dev/job=" + name
        self.wait_for(lambda: len(self.api.get(all_of)["items"]) == 1, "one pod")
        self.rubato("k8s", "scale", name, "2")
        self.wait_for_phase(f"{name}-worker-1", "Running")
        self.wait_for(lambda: "Running" in self.true_conditions(job), "the job to run")
        self.assertNotIn("rubato.dev/failures", self.get(job)["metadata"].get("annotations", {}))
        self.assertFalse({"Failed", "Succeeded"} & set(self.true_conditions(job)))

    def test_a_job_of_adaptdl_changes_its_size(self):
        self.nodes.image("registry.example.com/cifar", {"/root/main.py": SCRIPTS / "adaptdl_worker.py",
                                                        "/out": self.folder})
        self.install_crd()
        self.apply_crd("adaptdl.petuum.com", "v1", "AdaptDLJob", "adaptdljobs")
        self.kube.kubectl("apply", "-f", DATA / "adaptdl.yaml")
        operator = self.operator("--adopt", "adaptdljobs.adaptdl.petuum.com")
        job = "/apis/adaptdl.petuum.com/v1/namespaces/default/adaptdljobs"
        self.wait_for(lambda: self.met(0) == {(0, 1)}, "the first group, alone")
        self.rubato("k8s", "scale", "cifar", "3")
        self.wait_for(lambda: self.met(1) == {(0, 3), (1, 3), (2, 3)}, "the second, of three")
        operator.kill()
        self.kube.kubectl("delete", "pod", "cifar-worker-2", "--wait=false")
        operator.start()
        self.wait_for(lambda: self.met(2) == {(0, 3), (1, 3), (2, 3)}, "the third, after a loss")
        self.order("finish")
        status = self.wait_for(lambda: self.status("cifar", job).get("phase") == "Succeeded" and
                               self.status("cifar", job), "its success")
        self.assertEqual(status["group"], 2, status)
        # AdaptDL's own examples leave the name to the server.
        (self.folder / "again.yaml").write_text(
            (DATA / "adaptdl.yaml").read_text().replace("name: cifar", "generateName: cifar-", 1))
        told = self.rubato("submit", "--manifest", "again.yaml").stdout
        self.assertRegex(told, r"^adaptdljob default/cifar-\w+ created$")
        self.wait_for(lambda: self.status(told.split("/")[1].split()[0], job), "an operator for it")

    def test_a_job_of_adaptdl_is_sized_by_its_hints(self):
        files = {"/root/main.py": SCRIPTS / "adaptdl_worker.py", "/root/hints.py": SCRIPTS / "hints.py"}
        self.nodes.image("registry.example.com/cifar", files | {"/out": self.folder})
        self.install_crd()
        self.apply_crd("adaptdl.petuum.com", "v1", "AdaptDLJob", "adaptdljobs")
        self.kube.kubectl("apply", "-f", DATA / "adaptdl.yaml")
        self.operator("--adopt", "adaptdljobs.adaptdl.petuum.com", "--supervisor-url", self.supervisor_url())
        job = "/apis/adaptdl.petuum.com/v1/namespaces/default/adaptdljobs"
        # It has been seen with two: it may have four, which is its most.
        self.wait_for(lambda: self.met(1) == {(rank, 4) for rank in range(4)}, "the second group, of four")
        self.assertEqual(self.met(0), {(0, 1)})
        told = self.rubato("why", "--kubernetes", "cifar").stdout
        self.assertIn("4 workers in place of 1", told)
        self.assertIn("maxReplicas is 4", told)
        self.wait_for(lambda: "Resized" in self.kube.kubectl("get", "events"), "the event")
        # Whoever asks for a size gets it, and keeps it.
        self.rubato("k8s", "scale", "cifar", "2")
        self.wait_for(lambda: self.met(2) == {(0, 2), (1, 2)}, "the third, as asked for")
        self.order("finish")
        self.wait_for(lambda: self.status("cifar", job).get("phase") == "Succeeded", "its success")

    def met(self, group):
        """(rank, number) of those of a group that have met their master."""
        return {(line["rank"], line["world"]) for line in self.steps() if line["restarts"] == group}

    def test_pods_by_hand_step_by_step(self):
        """torchelastic's guide, in its order: storage, data, etcd, two workers, logs, one more, one less, the end."""
        self.examples_images()
        self.kube.kubectl("apply", "-f", DATA / "storage.yaml")
        self.kube.kubectl("apply", "-f", DATA / "download.yaml")
        self.wait_for_phase("download-dataset-task", "Succeeded")
        self.assertTrue((self.nodes.storage / "efs-pv/tiny-imagenet-200/train").is_dir())
        self.kube.kubectl("apply", "-f", DATA / "etcd.yaml")
        self.kube.kubectl("apply", "-f", DATA / "imagenet.yaml")
        seen = self.wait_for_world(2)
        with subprocess.Popen([str(self.kube.bin / "kubectl"), "logs", "-f", "imagenet-worker-1"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.kube.environment()) as log:
            third = [one for one in yaml.safe_load_all((DATA / "imagenet.yaml").read_text().replace(
                "imagenet-worker-2", "imagenet-worker-3").replace('"2"', '"3"')) if one["metadata"]["name"][-1] == "3"]
            self.kube.apply(third)
            seen = self.wait_for_world(3, seen)
            self.kube.kubectl("delete", "pod", "imagenet-worker-2")
            self.wait_for_world(2, seen)
            self.order("finish")
            for name in ("imagenet-worker-1", "imagenet-worker-3"):
                self.wait_for_phase(name, "Succeeded")
            self.assertEqual((log.communicate(timeout=harness.WAIT)[0] != "", log.returncode), (True, 0))
        self.kube.kubectl("delete", "--ignore-not-found", "-f", DATA / "imagenet.yaml")

    def test_the_examples_of_the_documentation_step_by_step(self):
        """docs/kubernetes.md: storage, data, the job, logs, scale, a lost pod, the end; pods without the operator."""
        self.examples_images()
        self.nodes.add_node("gpu1", gpus=4)
        self.rubato("k8s", "install", "--image", IMAGE)
        self.kube.kubectl("apply", "-f", EXAMPLES / "storage.yaml")
        self.kube.kubectl("apply", "-f", EXAMPLES / "download-dataset.yaml")
        self.wait_for_phase("download-dataset-task", "Succeeded")
        volume = self.nodes.storage / "efs-pv"
        self.assertTrue((volume / "tiny-imagenet-200").is_dir())
        (volume / "main.py").write_text((self.folder / "main.py").read_text())
        self.kube.kubectl("apply", "-f", EXAMPLES / "elastic-job.yaml")
        seen = self.wait_for_world(3)
        self.wait_for_job("imagenet", "Running")
        self.assertRegex(self.kube.kubectl("get", "ej"), r"imagenet +Running +\d +3 +2 +4 +0 +None")
        self.rubato("k8s", "logs", "imagenet", "--worker", "1")
        self.kube.kubectl("scale", "ej/imagenet", "--replicas=4")
        seen = self.wait_for_world(4, seen)
        self.kube.kubectl("delete", "pod", "imagenet-worker-1")
        seen = self.wait_for_world(4, seen)
        self.kube.kubectl("delete", "ej", "imagenet")
        # Gone, not only going: the pods by hand have the same names.
        self.wait_for(lambda: not self.api.get("/api/v1/namespaces/default/pods?labelSelector=rubato.dev/job=imagenet")[
            "items"], "the pods to go")
        seen = len(self.steps())
        self.kube.kubectl("apply", "-f", EXAMPLES / "hand-made-pods.yaml")
        self.wait_for(lambda: any(line["group_rank"] == 1 for line in self.steps()[seen:]), "both pods in one group")
        self.order("finish")
        for name in ("imagenet-worker-1", "imagenet-worker-2"):
            self.wait_for_phase(name, "Succeeded")


if __name__ == "__main__":
    harness.main()
