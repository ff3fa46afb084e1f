"""`rubato operator` on a real Kubernetes control plane, its pods real processes: see kube_operator.py, kubelet.py."""
import copy
import json
import signal
import subprocess
import time

import yaml

import harness
from harness import PYTHON, RUBATO, SCRIPTS
from kube_api import ApiError
from kube_operator import IMAGE, JOBS, OperatorCase


class Elastic(OperatorCase):
    def test_a_training_grows_shrinks_and_survives_its_operator(self):
        """Installed as people do: the operator is a deployment with no more rights than it needs."""
        self.rubato("k8s", "install", "--image", IMAGE)
        self.order("limit", 0)  # the first pod may begin alone where the second one is late
        self.kube.apply(self.job("train", command=[PYTHON, str(SCRIPTS / "ddp_train.py"), "/out", "12", "0"],
                                 container={"env": [{"name": "GLOO_SOCKET_IFNAME", "value": "eth0"}]}))
        self.wait_for_start(world=2, first=0)
        self.order("limit", 3)
        self.wait_for_step(3, world=2)
        self.scale("train", 3)
        self.wait_for_start(world=3, first=3)
        self.order("limit", 6)
        self.wait_for_step(6, world=3)
        self.kube.kubectl("delete", "pod", "-n", "rubato-system", "-l", "app.kubernetes.io/name=rubato-operator",
                          "--grace-period=0", "--force")
        self.scale("train", 1)
        self.wait_for_start(world=1, first=6)
        self.order("limit", 12)
        status = self.wait_for_job("train", "Succeeded")
        self.assertEqual(status["failures"], 0, status)
        wanted = float(subprocess.run([PYTHON, SCRIPTS / "ddp_train.py", "--reference", "12"], capture_output=True,
                                      text=True, check=True).stdout)
        self.assertAlmostEqual(json.loads((self.folder / "result.json").read_text())["loss"], wanted, places=9)
        self.kube.kubectl("delete", "elasticjob", "train")
        self.wait_for(lambda: not self.job_pods("train"), "the pods to go with their job")
        self.rubato("k8s", "uninstall")
        self.assertIsNotNone(self.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elasticjobs.rubato.dev"))
        self.rubato("k8s", "uninstall", "--purge")
        self.wait_for(lambda: self.get(JOBS) is None, "the CRD to be gone")

    def test_an_adaptive_job_is_sized_by_its_hints(self):
        self.install_crd()
        url = self.supervisor_url()
        operator = self.operator("--supervisor-url", url)
        steps = ["/usr/bin/python3", str(SCRIPTS / "hints.py"), str(SCRIPTS / "steps.py"), "/out"]
        self.kube.apply(self.job("adaptive", 1, 1, 3, command=steps, adaptive={}))
        seen = self.wait_for_world(3)  # seen with two: four would be tried, three is its most
        self.wait_for(lambda: self.status("adaptive").get("wanted") == 3, "the size in the status")
        told = self.rubato("why", "--kubernetes", "adaptive").stdout
        self.assertIn("3 workers in place of 1", told)
        self.assertIn("is adaptive", self.rubato("k8s", "scale", "adaptive", "2", code=None).stderr)
        # The size is the job's: another operator keeps it.
        operator.kill()
        self.kube.kubectl("delete", "pod", "adaptive-worker-2", "--wait=false")
        operator.start()
        self.wait_for_world(3, seen)
        self.order("finish")
        self.assertEqual(self.wait_for_job("adaptive", "Succeeded")["failures"], 0)

    def test_a_script_in_a_bucket_is_what_the_workers_run(self):
        """The seed's way: `s3://BUCKET/…/main.py` in the place of the script, in an image that only has Python."""
        with subprocess.Popen([PYTHON, str(harness.ROOT / "tests/aws/fake_aws.py"), "--host", self.network.address],
                              stdout=subprocess.PIPE, text=True, preexec_fn=harness.die_with_parent) as bucket:
            self.addCleanup(bucket.kill)
            port = json.loads(bucket.stdout.readline())["url"].rpartition(":")[2]
            aws = {"AWS_ENDPOINT_URL": f"http://{self.network.address}:{port}", "AWS_REGION": "eu-west-1",
                   "AWS_ACCESS_KEY_ID": "AKIAFAKE", "AWS_SECRET_ACCESS_KEY": "fake-secret"}
            (self.folder / "main.py").write_text(
                f"import runpy\nrunpy.run_path({str(SCRIPTS / 'steps.py')!r}, run_name='__main__')\n")
            self.rubato("cp", "main.py", "s3://bucket/petctl/me/main.py", env=aws)
            self.install_crd()
            self.operator()
            self.kube.apply(self.job("fetched", command=["/usr/bin/python3", "s3://bucket/petctl/me/main.py", "/out"],
                                     container={"env": [{"name": name, "value": text} for name, text in aws.items()]}))
            self.wait_for_world(2)
            self.order("finish")
            self.assertEqual(self.wait_for_job("fetched", "Succeeded")["failures"], 0)
            bucket.kill()

    def starts(self):
        return [line for line in self.steps() if "rank" in line]

    def wait_for_step(self, step, world):
        self.wait_for(lambda: any(line.get("step") == step and line["world"] == world for line in self.steps()),
                      f"step {step} by {world}")

    def wait_for_start(self, world, first):
        self.wait_for(lambda: any(line["world"] == world and line["first"] == first for line in self.starts()),
                      f"a start of {world} from step {first}")

    def test_pods_are_replaced_whatever_ended_them(self):
        self.install_crd()
        self.operator()
        self.kube.apply(self.job("steps"))
        seen = self.wait_for_world(2)
        self.wait_for_job("steps", "Running")
        self.assertEqual(self.get(f"{JOBS}/steps/scale")["status"]["replicas"], 2)
        self.kube.kubectl("delete", "pod", "steps-worker-0", "--wait=false")  # the one that opened the group
        seen = self.wait_for_world(2, seen)
        evicted = self.pod("steps-worker-1")["metadata"]["uid"]
        self.nodes.evict("default", "steps-worker-1")
        self.wait_for(lambda: (lambda pod: pod and pod["metadata"]["uid"] != evicted)(self.pod("steps-worker-1")),
                      "a pod in the place of the evicted one")
        seen = self.wait_for_world(2, seen)
        # A node that has no room after all: a pod without containers, and nobody's failure.
        self.nodes.refuse_next("OutOfnvidia.com/gpu")
        self.kube.kubectl("delete", "pod", "steps-worker-1", "--wait=false")
        seen = self.wait_for_world(1, seen)
        seen = self.wait_for_world(2, seen)
        # The cluster autoscaler is about to take a node away.
        node = self.wait_for_phase("steps-worker-1", "Running")["spec"]["nodeName"]
        self.kube.kubectl("taint", "node", node, "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
        self.wait_for_pods_off(node)
        self.assertIn("notice: its node is about to go", self.kube.kubectl("get", "events"))
        seen = self.wait_for_world(2, seen)
        self.kube.kubectl("taint", "node", node, "ToBeDeletedByClusterAutoscaler-")
        node = self.wait_for_phase("steps-worker-1", "Running")["spec"]["nodeName"]
        self.kube.kubectl("drain", node, "--force", "--delete-emptydir-data", "--timeout=120s")
        self.wait_for_pods_off(node)
        self.wait_for_world(2, seen)
        self.order("finish")
        status = self.wait_for_job("steps", "Succeeded")
        self.assertEqual(status["failures"], 0, status)


    def wait_for_pods_off(self, node):
        self.wait_for(lambda: len(self.job_pods("steps")) == 2 and
                      all(pod["spec"].get("nodeName") not in (None, node) for pod in self.job_pods("steps").values()),
                      f"both pods off {node}")

    def test_a_submitted_job_is_scaled_and_lives_through_an_upgrade_of_the_crd(self):
        new = yaml.safe_load(self.rubato("k8s", "manifests", "--crd").stdout)
        old = copy.deepcopy(new)
        fields = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        for name in ("checkpoint", "priorityClassName"):
            del fields[name]
        self.kube.apply(old)
        self.kube.kubectl("wait", "--for=condition=established", "crd", "elasticjobs.rubato.dev")
        operator = self.operator()
        (self.folder / "job.yaml").write_text(yaml.safe_dump(self.job("steps")))
        self.assertIn("elasticjob default/steps applied", self.rubato("submit", "--manifest", "job.yaml").stdout)
        seen = self.wait_for_world(2)
        self.assertIn("3 workers wanted, 2 before", self.rubato("k8s", "scale", "steps", "3").stdout)
        seen = self.wait_for_world(3, seen)
        self.assertIn("1 to 3 workers", self.rubato("k8s", "scale", "steps", "4", code=2).stderr)
        before = {name: pod["metadata"]["uid"] for name, pod in self.job_pods("steps").items()}
        self.kube.apply(new)
        self.kube.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
                         "metadata": {"name": "urgent"}})
        self.wait_for(self.make_urgent, "the new field")
        self.assertEqual({name: pod["metadata"]["uid"] for name, pod in self.job_pods("steps").items()}, before)
        self.wait_for(lambda: self.remade("steps-worker-2")["spec"].get("priorityClassName") == "urgent",
                      "a pod of the new priority")
        self.wait_for_world(3, seen)
        self.order("finish")
        self.assertEqual(self.wait_for_job("steps", "Succeeded")["failures"], 0)
        self.assertIsNone(operator.process.poll(), "it never ended")

    def remade(self, name):
        """A pod that stays; deleted once more where the operator made it before it heard of the change."""
        pod = self.job_pods("steps").get(name, {"spec": {}, "metadata": {"deletionTimestamp": "gone"}})
        if "deletionTimestamp" in pod["metadata"]:
            return {"spec": {}}
        if pod["spec"].get("priorityClassName") != "urgent":
            self.kube.kubectl("delete", "pod", name, "--wait=false")
        return pod

    def make_urgent(self):
        """The server takes some time to know a new schema, and drops fields of it until then."""
        try:
            return self.api.merge(f"{JOBS}/steps", {"spec": {"priorityClassName": "urgent"}})["spec"].get(
                "priorityClassName")
        except ApiError as error:
            if error.code != 404:
                raise
            return None


class Installed(OperatorCase):
    nodes_count = 0

    def test_an_operator_keeps_no_rights_that_it_had_before(self):
        rights = "clusterrole,clusterrolebinding,role,rolebinding"

        def names():
            told = self.kube.kubectl("get", rights, "-A", "-l", "app.kubernetes.io/name=rubato-operator", "-o", "name")
            return {line.partition("/")[0].partition(".")[0] + "/" + line.partition("/")[2] for line in told.split()}

        lease = {"role/rubato-operator-lease", "rolebinding/rubato-operator-lease"}
        everywhere = {"clusterrole/rubato-operator", "clusterrolebinding/rubato-operator"}
        here = {"role/rubato-operator-jobs", "rolebinding/rubato-operator-jobs"}
        self.rubato("k8s", "install", "--image", IMAGE)
        self.assertEqual(names(), lease | everywhere)
        self.rubato("k8s", "install", "--image", IMAGE, "--watch", "default")
        self.assertEqual(names(), lease | here)
        # One beside it for all namespaces: the rights on those are its own.
        self.rubato("k8s", "install", "--image", IMAGE, "--namespace", "other")
        self.rubato("k8s", "install", "--image", IMAGE, "--watch", "kube-public")
        self.assertEqual(names(), lease | here | everywhere)
        self.assertEqual(self.kube.kubectl("get", "role", "-n", "default", "-o", "name"), "")
        self.rubato("k8s", "uninstall")  # it says itself where its rights are
        self.assertEqual(names(), lease | everywhere)
        self.rubato("k8s", "uninstall", "--namespace", "other", "--purge")
        self.assertEqual(names(), set())


class Blocked(OperatorCase):
    def test_what_blocks_or_ends_a_job_is_in_its_status(self):
        self.install_crd()
        self.operator()
        self.assert_failures_are_explained()
        self.nodes.image("no/such", bad=True)
        self.kube.kubectl("create", "quota", "few", "--hard=pods=3")
        self.kube.apply([self.job("pull", 1, image="no/such:1"),
                         self.job("huge", 1, container={"resources": {"requests": {"cpu": "99"}}}),
                         self.job("odd", 1, least=4, most=3)])
        self.assertIn("no/such:1", self.wait_for_block("pull", "ImagePullFailed")["message"])
        self.assertIn("Insufficient cpu", self.wait_for_block("huge", "Unschedulable")["message"])
        self.wait_for_block("odd", "InvalidSpec")
        for name, reason, fix in (("pull", "ImagePullFailed", "imagePullSecrets"),
                                  ("huge", "Insufficient cpu", "resources.requests"),
                                  ("odd", "InvalidSpec", "kubectl edit")):
            told = self.rubato("why", "--kubernetes", name).stdout
            self.assertIn(reason, told)
            self.assertIn(fix, told)
            document = json.loads(self.rubato("why", "--kubernetes", name, "--json").stdout)
            self.assertEqual(document["phase"], "Pending")
            self.assertTrue(document["against"] and document["changes"], document)
        self.assertIn("no elastic job is called 'nobody'", self.rubato("why", "--kubernetes", "nobody", code=1).stderr)
        self.wait_for(lambda: len(self.pods()) == 2, "two pods")
        self.kube.apply(self.job("quota", 2))
        self.assertIn("exceeded quota", self.wait_for_block("quota", "QuotaExceeded")["message"])
        self.kube.kubectl("delete", "quota", "few")
        self.nodes.image("no/such")
        self.wait_for(lambda: self.condition("quota", "Blocked").get("status") == "False", "quota to be free")
        self.wait_for_world(2)
        # What a pod waits for is mended in the job, and nobody need delete the pod.
        self.kube.kubectl("patch", "ej", "huge", "--type=json", "-p", json.dumps([
            {"op": "remove", "path": "/spec/template/spec/containers/0/resources"}]))
        self.wait_for_phase("huge-worker-0", "Running")
        # Suspend as Kueue does it: no pods, and all of it again later.
        self.kube.kubectl("delete", "elasticjob", "pull", "huge", "odd")
        self.kube.kubectl("patch", "elasticjob", "quota", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        self.wait_for_job("quota", "Suspended")
        self.wait_for(lambda: not self.job_pods("quota"), "no pods while suspended")
        seen = len(self.steps())
        self.kube.kubectl("patch", "elasticjob", "quota", "--type=merge", "-p", '{"spec": {"suspend": false}}')
        self.wait_for_world(2, seen)

    def test_a_job_may_have_any_name_that_a_server_takes(self):
        self.install_crd()
        self.operator()
        typo = self.job("typo", 1)
        typo["spec"]["minReplica"] = typo["spec"].pop("minReplicas")
        (self.folder / "typo.yaml").write_text(yaml.safe_dump(typo))
        self.assertIn("spec.minReplica", self.rubato("submit", "--manifest", "typo.yaml", code=2).stderr)
        self.assertIsNone(self.status("typo"))
        name = "7b-llama-3.1-" + "x" * 60
        self.kube.apply(self.job(name, 2))
        self.wait_for_world(2)
        self.wait_for_job(name, "Running")
        self.rubato("k8s", "logs", name, "--worker", "1")
        self.assertIn("ready", self.rubato("why", "--kubernetes", name).stdout)
        self.kube.kubectl("scale", "ej", name, "--replicas=1")
        self.wait_for(lambda: len(self.pods()) == 1, "one pod")
        self.order("finish")
        self.wait_for_job(name, "Succeeded")

    def test_a_webhook_that_does_not_answer_is_told(self):
        self.install_crd()
        self.operator()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        self.kube.apply({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                         "metadata": {"name": "nobody"}, "webhooks": [{
                             "name": "nobody.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                             "clientConfig": {"url": f"https://127.0.0.1:{harness.free_port()}/"}, "rules": [rule],
                             "objectSelector": {"matchLabels": {"rubato.dev/job": "hooked"}}}]})
        probe = ["run", "probe", "--image=test/any", "--labels=rubato.dev/job=hooked", "--dry-run=server"]
        self.wait_for(lambda: self.kube.kubectl(*probe, code=None).returncode != 0, "the webhook to be asked")
        self.kube.apply(self.job("hooked", 1))
        self.assertIn("nobody.example.com", self.wait_for_block("hooked", "PodRefused")["message"])
        self.assertIn("webhooks", self.rubato("why", "--kubernetes", "hooked").stdout)
        self.kube.kubectl("delete", "validatingwebhookconfiguration", "nobody")
        self.wait_for_world(1)

    def assert_failures_are_explained(self):
        breaks = ["sh", "-c", "echo broken; exit 7"]
        self.kube.apply([self.job("fails", 1, command=breaks, maxRestarts=0, backoffLimit=0),
                         self.job("short", 1, command=["true"], ttlSecondsAfterFinished=0)])
        status = self.wait_for_job("fails", "Failed")
        self.assertEqual(status["reason"], "BackoffLimitExceeded")
        self.assertIn("broken", self.kube.kubectl("logs", "fails-worker-0"))
        self.assertIn("broken", self.rubato("k8s", "logs", "fails").stdout)
        self.assertIn("fails-worker-0", status["message"])
        self.wait_for(lambda: self.status("short") is None, "the job to be gone after its time")
        self.kube.kubectl("delete", "elasticjob", "fails")
        self.wait_for(lambda: not self.pods(), "its pods to go with it")


class Faults(OperatorCase):
    def test_the_operator_is_killed_at_each_step(self):
        """After each request that the server has carried out and the operator does not know of."""
        self.install_crd()
        proxy = self.proxy()
        operator = self.operator(kubeconfig=proxy.kubeconfig)

        def strike(method, path):
            proxy.on_reply(method, path, operator.kill_soon)

        def kill_at(method, path, act):
            strike(method, path)
            act()
            operator.again()

        # What is to kill it is there before it is: it may be quicker than we.
        strike("POST", "/services")
        self.kube.apply(self.job("steps"))
        operator.again(lambda: strike("POST", "/pods"))
        operator.again(lambda: strike("PATCH", "/status"))
        operator.again()
        seen = self.wait_for_world(2)
        kill_at("POST", "/pods", lambda: self.scale("steps", 3))
        seen = self.wait_for_world(3, seen)
        kill_at("DELETE", "/pods", lambda: self.scale("steps", 1))
        self.wait_for_world(1, seen)
        self.wait_for(lambda: len(self.job_pods("steps")) == 1, "one pod")
        proxy.on_reply("PATCH", "/status", operator.kill_soon)
        self.order("finish")
        operator.again()
        status = self.wait_for_job("steps", "Succeeded")
        self.assertEqual(status["failures"], 0, status)
        names = [json.dumps(one) for one in proxy.matching("POST", "/pods") if one[2] == 201]
        self.assertEqual(len(names), 3, "each pod was made once")

    def test_a_steady_job_costs_no_call_and_an_api_server_may_be_in_trouble(self):
        self.install_crd()
        proxy = self.proxy()
        operator = self.operator(kubeconfig=proxy.kubeconfig)
        self.kube.apply(self.job("steps", 1))
        seen = self.wait_for_world(1)
        self.wait_for(lambda: self.status("steps").get("readyReplicas") == 1, "ready")
        self.assert_no_calls(proxy)
        faults = [("410 in the watches", proxy.gone), ("connections cut", proxy.cut),
                  ("500", lambda: proxy.fail(500, 2, "POST", "/pods")),
                  ("429", lambda: proxy.fail(429, 2, "POST", "/pods", retry_after=1)),
                  ("409", lambda: proxy.fail(409, 1, "PATCH", "/status")),
                  ("a lost reply", lambda: proxy.lose_reply(1, "POST", "/pods"))]
        size = 1
        for name, fault in faults:
            with self.subTest(name):
                fault()
                size = 3 - size
                self.scale("steps", size)
                seen = self.wait_for_world(size, seen)
                self.wait_for(lambda: self.status("steps").get("readyReplicas") == size, f"{size} ready after {name}")
        proxy.heal()
        # Watches that bring nothing any more, and then their end: what was missed comes by a new list.
        proxy.drop_watches(True)
        self.scale("steps", 3 - size)
        self.kube.kubectl("create", "configmap", "unrelated")
        proxy.drop_watches(False)
        proxy.cut()
        seen = self.wait_for_world(3 - size, seen)
        # A server that is away for a while.
        proxy.refuse(True)
        proxy.cut()
        self.scale("steps", size)
        proxy.refuse(False)
        self.wait_for_world(size, seen)
        self.assertIsNone(operator.process.poll(), "it never ended")

    def assert_no_calls(self, proxy):
        """Things happen in the cluster, and none of them is the job's."""
        calls = lambda: len([one for one in list(proxy.requests) if "watch=" not in one[1]])
        made = []  # how many while each of them ran; the first ones are for what was still on its way
        while made[-2:] != [0, 0] and len(made) < 8:
            before = calls()
            name = f"other{len(made)}"
            self.kube.kubectl("run", name, "--image=test/any", "--restart=Never", "--command", "--", "true")
            self.wait_for_phase(name, "Succeeded")
            made.append(calls() - before)
        self.assertEqual(made[-2:], [0, 0], f"{made} {list(proxy.requests)[-10:]}")


class Machines(OperatorCase):
    control_plane = {"node_grace_s": 30, "toleration_s": 1}  # a busy machine is late with a node's signs of life

    def test_a_lost_node_and_two_operators(self):
        self.install_crd()
        first = self.operator("--leader-elect", "--lease-namespace", "default")
        lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/rubato-operator"
        self.wait_for(lambda: self.get(lease), "a leader")
        second = self.operator("--leader-elect", "--lease-namespace", "default")
        spread = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"rubato.dev/job": "steps"}}}]}}
        job = self.job("steps")
        job["spec"]["template"]["spec"]["affinity"] = spread
        self.kube.apply(job)
        seen = self.wait_for_world(2)
        lost = self.pod("steps-worker-1")
        self.nodes.lose(lost["spec"]["nodeName"])
        holder = lambda: self.get(lease)["spec"].get("holderIdentity")
        before = holder()
        first.kill()
        seen = self.wait_for_world(1, seen)  # the other goes on alone
        self.wait_for(lambda: "deletionTimestamp" in self.pod("steps-worker-1")["metadata"], "the lost pod's deletion")
        self.wait_for(lambda: holder() not in (None, "", before), "the second to lead")
        self.assertIn("steps-worker-1", self.wait_for_block("steps", "NodeLost")["message"])
        # Its worker may still run: nobody has its name before the node is back.
        self.assertEqual(self.pod("steps-worker-1")["metadata"]["uid"], lost["metadata"]["uid"])
        self.assertTrue(self.nodes.running("default", "steps-worker-1"))
        self.nodes.find(lost["spec"]["nodeName"])
        self.wait_for_world(2, seen)
        third = self.operator("--leader-elect", "--lease-namespace", "default")
        second.signal(signal.SIGTERM)
        self.assertEqual(second.process.wait(harness.WAIT), 0)
        self.order("finish")
        self.wait_for_job("steps", "Succeeded")
        self.assertIsNone(third.process.poll())


if __name__ == "__main__":
    harness.main()
