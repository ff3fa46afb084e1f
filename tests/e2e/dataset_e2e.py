#!/usr/bin/env python3
"""`rubato dataset get`: from S3 and Cloud Storage (tests/aws, tests/gcp) onto a machine once."""
import json
import subprocess
import urllib.request

import cluster_harness
import harness
from cluster_harness import ClusterCase
from harness import PYTHON, ROOT

class Datasets(ClusterCase):
    def setUp(self):
        super().setUp()
        self.servers = {}
        for cloud in ("aws", "gcp"):
            server = subprocess.Popen([PYTHON, str(ROOT / f"tests/{cloud}/fake_{cloud}.py")], stdout=subprocess.PIPE,
                                      text=True, preexec_fn=harness.die_with_parent)
            self.addCleanup(self.end, server)
            self.servers[cloud] = json.loads(server.stdout.readline())
        self.home = self.folder / "home"
        self.kept = self.home / ".rubato/datasets"

    @staticmethod
    def end(server):
        server.terminate()
        server.wait()
        server.stdout.close()

    def environment(self, **changes):
        here = {}
        if len(getattr(self, "servers", {})) == 2:
            aws, gcp = self.servers["aws"], self.servers["gcp"]
            here = {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": aws["url"], "AWS_ACCESS_KEY_ID": "AKIAFAKE",
                    "AWS_SECRET_ACCESS_KEY": "fake-secret", "RUBATO_GCP_ENDPOINT": gcp["url"], "HOME": str(self.home),
                    "GOOGLE_APPLICATION_CREDENTIALS": gcp["credentials"]["service_account"]}
        return super().environment(**(here | changes))

    def fill(self, address, files):
        folder = self.folder / "source"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            self.rubato("cp", path, f"{address}{name}")

    def get(self, *args, **more):
        return self.rubato("dataset", "get", *args, **more)

    def asked(self, operation, cloud="aws"):
        with urllib.request.urlopen(self.servers[cloud]["url"] + "/_fake/requests") as answer:
            return [one for one in json.load(answer) if one["operation"] == operation]

    def test_what_is_not_its_own_stays(self):
        self.fill("s3://bucket/words/", {"a": "one"})
        self.get("words=s3://bucket/words", "words.new=s3://bucket/words/a")
        self.get("words=s3://bucket/words")
        self.assertEqual((self.kept / "words.new/a").read_text(), "one", "another dataset")
        (self.kept / "mine").write_text("a person's")
        refused = self.get("mine=s3://bucket/words", code=2).stderr
        self.assertIn("'mine' is there already", refused)
        self.assertEqual((self.kept / "mine").read_text(), "a person's")
        self.assertNotEqual(self.get("none=s3://bucket/none/", code=None).returncode, 0)
        self.assertFalse((self.kept / "none").exists())

    def test_only_what_is_new_is_fetched(self):
        self.fill("s3://bucket/words/", {"a": "one", "b/c": "two"})
        self.fill("gs://bucket/", {"single": "three"})
        first = self.get("words=s3://bucket/words", "one=gs://bucket/single")
        self.assertIn("words: 2 files", first.stderr)
        self.assertEqual([(self.kept / "words/a").read_text(), (self.kept / "words/b/c").read_text(),
                          (self.kept / "one/single").read_text()], ["one", "two", "three"])
        reads = len(self.asked("GetObject"))
        self.assertIn("(0 B fetched)", self.get("words=s3://bucket/words").stderr)
        self.assertEqual(len(self.asked("GetObject")), reads)
        self.fill("s3://bucket/words/", {"a": "uno!"})
        (self.kept / "words/b/c").write_text("")  # somebody spoils it
        self.get("words=s3://bucket/words")
        self.assertEqual((self.kept / "words/a").read_text(), "uno!")
        self.assertEqual((self.kept / "words/b/c").read_text(), "two")
        self.assertEqual(len(self.asked("GetObject")), reads + 2)

    def test_what_is_damaged_on_its_way_is_not_kept(self):
        self.fill("s3://bucket/words/", {"a": "one"})
        urllib.request.urlopen(urllib.request.Request(self.servers["aws"]["url"] + "/_fake/set", method="POST",
                                                      data=json.dumps({"corrupt": 1}).encode())).read()
        self.assertIn("damaged", self.get("words=s3://bucket/words/", code=1).stderr)
        self.assertFalse((self.kept / "words").exists())
        self.get("words=s3://bucket/words/")
        self.assertEqual((self.kept / "words/a").read_text(), "one")

    def test_what_nobody_has_wanted_for_longest_goes(self):
        for name in ("a", "b", "c"):
            self.fill(f"s3://bucket/{name}/", {"file": name * 1000})
        for name in ("a", "b", "a"):
            self.get("--max", "2500", f"{name}=s3://bucket/{name}/")
        self.assertIn("removed: ", self.get("--max", "2500", "c=s3://bucket/c/").stderr)
        self.assertEqual(sorted(path.name for path in self.kept.iterdir() if path.is_symlink()), ["a", "c"])
        self.assertIn("raise --max", self.get("--max", "1500", "a=s3://bucket/a/", "b=s3://bucket/b/",
                                                     code=2).stderr)

    def test_a_bucket_that_does_not_answer_takes_nothing_away(self):
        self.fill("s3://bucket/words/", {"a": "one"})
        self.get("words=s3://bucket/words/")
        gone = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{harness.free_port()}", "AWS_MAX_ATTEMPTS": "1"}
        self.assertIn("what is here is taken", self.get("words=s3://bucket/words/", env=gone).stderr)
        self.assertEqual((self.kept / "words/a").read_text(), "one")
        self.get("others=s3://bucket/others/", env=gone, code=1)


if __name__ == "__main__":
    cluster_harness.main()
