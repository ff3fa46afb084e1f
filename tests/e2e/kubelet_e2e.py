"""The test bed of Kubernetes itself: what it plays must be what a real cluster does, or tests on it mean nothing."""
import base64
import unittest

import harness
from kube_api import Api, ApiError
from kube_testing import KubeCase, shell_pod

WAITS = "trap 'echo got TERM; exit 3' TERM; echo up; while :; do sleep 0.05; done"


class Pods(KubeCase):
    def test_pods_are_real_processes_with_all_that_their_specification_says(self):
        self.kube.apply([
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"colour": "blue"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"},
             "data": {"word": base64.b64encode(b"swordfish").decode()}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "group"},
             "spec": {"clusterIP": "None", "selector": {"app": "group"}, "ports": [{"port": 80}]}},
            shell_pod("server", WAITS, labels={"app": "group"}, spec={"hostname": "server", "subdomain": "group"}),
        ])
        self.nodes.image("no/such", bad=True)
        self.nodes.image("test/tool", {"/tool": "/bin/true"}, entrypoint=["sh", "-c"])
        self.wait_for_phase("server", "Running")
        client = shell_pod("client", """
            set -e; cat /shared/from-init; echo "$WHO $COLOUR $WORD $MINE $1" ; cat /conf/colour; echo
            test -s /var/run/secrets/kubernetes.io/serviceaccount/token
            until getent hosts server.group; do sleep 0.05; done
            until getent hosts group; do sleep 0.05; done; hostname; exit 5""",
            spec={"volumes": [{"name": "shared", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "conf"}}],
                  "initContainers": [{"name": "copy", "image": "test/tool:1",
                                      "args": ["test -x /tool && echo initial >/shared/from-init"],
                                      "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}]},
            container={"env": [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                               {"name": "MINE", "value": "$(WHO)-$$(WHO)"},
                               {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "colour"}}},
                               {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "word"}}}],
                       "args": ["zero", "$(COLOUR)-arg"],
                       "volumeMounts": [{"name": "shared", "mountPath": "/shared"},
                                        {"name": "conf", "mountPath": "/conf"}]})
        retry = shell_pod("retry", "[ -e /keep/once ] || { : >/keep/once; exit 1; }", restart="OnFailure",
                          spec={"volumes": [{"name": "keep", "emptyDir": {}}]},
                          container={"volumeMounts": [{"name": "keep", "mountPath": "/keep"}]})
        self.kube.apply([client, retry, shell_pod("bad", "true", image="no/such:1"),
                         shell_pod("big", "true", container={"resources": {"requests": {"cpu": "100"}}})])
        ended = self.wait_for_phase("client", "Failed", "Succeeded")
        address = self.pod("server")["status"]["podIP"]
        self.assertEqual(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 5)
        self.assertEqual(self.kube.kubectl("logs", "client").split("\n")[:3],
                         ["initial", "client blue swordfish client-$(WHO) blue-arg", "blue"])
        self.assertIn(f"{address}", self.kube.kubectl("logs", "client"))
        self.assertEqual(self.wait_for_phase("retry", "Succeeded")["status"]["containerStatuses"][0]["restartCount"], 1)
        reason = lambda name: self.pod(name)["status"].get("conditions", [{}])[0].get("reason")
        self.wait_for(lambda: reason("big") == "Unschedulable", "big not to be scheduled")
        self.wait_for(lambda: "ImagePullBackOff" in self.kube.kubectl("get", "pod", "bad"), "bad")
        self.nodes.image("no/such")
        self.wait_for_phase("bad", "Succeeded", "Failed")

    def test_pods_end_as_asked_and_nodes_are_lost(self):
        self.kube.apply([shell_pod("polite", WAITS), shell_pod("deaf", "trap '' TERM; echo up; sleep 1000"),
                         shell_pod("crowded", WAITS)])
        for name in ("polite", "deaf", "crowded"):
            self.wait_for(lambda: "up" in self.nodes.logs("default", name), f"{name} to be up")
        pid = self.nodes.pid("default", "polite")
        self.kube.kubectl("delete", "pod", "polite")
        self.assert_gone(pid)
        self.assertIn("got TERM", self.nodes.logs("default", "polite"))
        self.kube.kubectl("delete", "pod", "deaf", "--grace-period=1")
        self.nodes.evict("default", "crowded")
        self.assertEqual(self.wait_for_phase("crowded", "Failed")["status"]["reason"], "Evicted")
        self.nodes.refuse_next("OutOfpods")
        self.kube.apply(shell_pod("late", WAITS))
        refused = self.wait_for_phase("late", "Failed")["status"]
        self.assertEqual((refused["reason"], "containerStatuses" in refused), ("OutOfpods", False))
        # A lost node: its pod is being deleted, and stays so until the node is back.
        self.kube.apply(shell_pod("far", WAITS, spec={"nodeName": "n1"}))
        self.wait_for(lambda: "up" in self.nodes.logs("default", "far"), "far to be up")
        pid = self.nodes.pid("default", "far")
        self.nodes.lose("n1")
        self.kube.kubectl("delete", "pod", "far", "--wait=false")
        self.kube.apply(shell_pod("near", "true", spec={"nodeName": "n2"}))
        self.wait_for_phase("near", "Succeeded")
        self.assertIn("deletionTimestamp", self.pod("far")["metadata"])
        self.assertTrue(self.nodes.running("default", "far"))
        self.nodes.find("n1")
        self.wait_for(lambda: self.pod("far") is None, "far to be gone")
        self.assert_gone(pid)

    def test_the_proxy_does_what_it_is_told(self):
        proxy = self.proxy()
        api = Api(proxy.kubeconfig)
        nodes = "/api/v1/nodes"
        self.assertEqual(len(api.get(nodes)["items"]), 2)
        proxy.fail(429, method="GET", path="/nodes", retry_after=1)
        with self.assertRaises(ApiError) as refused:
            api.get(nodes)
        self.assertEqual(refused.exception.code, 429)
        api.get(nodes)
        proxy.lose_reply(method="POST", path="/configmaps")
        body = {"metadata": {"name": "once"}}
        with self.assertRaises(Exception):
            api.call("POST", "/api/v1/namespaces/default/configmaps", body)
        self.assertIsNotNone(self.get("/api/v1/namespaces/default/configmaps/once"))
        # A watch that is told 410 lists again; one that is held sees nothing until it may.
        import threading
        stop, seen = threading.Event(), []
        maps = "/api/v1/namespaces/default/configmaps"
        thread = threading.Thread(target=lambda: seen.extend(api.watch(maps, stop)), daemon=True)
        thread.start()
        lists = lambda: [event for event in seen if event["type"] == "LISTED"]
        names = lambda: [event["object"]["metadata"].get("name") for event in seen]
        self.wait_for(lambda: lists() and proxy.watches(), "the first list")
        before = len(lists()), len(proxy.watches())  # one each, unless it has tried again
        proxy.gone()
        self.wait_for(lambda: len(lists()) > before[0] and len(proxy.watches()) > before[1], "a list after 410")
        proxy.hold_watches(True)
        self.kube.kubectl("create", "configmap", "late")
        self.assertNotIn("late", names())
        proxy.hold_watches(False)
        self.wait_for(lambda: "late" in names(), "the event that was held")
        before = len(proxy.watches())
        proxy.cut()
        self.wait_for(lambda: len(proxy.watches()) > before, "a new watch after the cut")
        stop.set()
        api.close()
        proxy.cut()
        thread.join()


if __name__ == "__main__":
    harness.main()
