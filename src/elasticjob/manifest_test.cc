#include "elasticjob/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/timestamp.h"
#include "core/yaml.h"
#include "elasticjob/launch_command.h"
#include "elasticjob/pod_manifest.h"
#include "elasticjob/scale.h"
#include "elasticjob/submit.h"
#include "model/yaml_value.h"

namespace rubato::elasticjob {
namespace {

using nlohmann::json;

json document_of(const std::string& yaml) { return json::parse(value_of(Yaml::parse(yaml, "job.yaml")).dump()); }

constexpr const char* kJob = R"(
apiVersion: rubato.dev/v1
kind: ElasticJob
metadata: {name: mnist, namespace: team, uid: u-1, generation: 3, resourceVersion: "17"}
spec:
  minReplicas: 2
  maxReplicas: 4
  replicas: 3
  nprocPerNode: 2
  maxRestarts: 5
  template:
    metadata: {labels: {team: a}}
    spec:
      containers:
      - name: trainer
        image: pytorch
        command: [python, train.py]
        args: [--epochs, "3"]
)";

constexpr const char* kTorchElasticJob = R"(
apiVersion: elastic.pytorch.org/v1alpha1
kind: ElasticJob
metadata: {name: imagenet, namespace: elastic-job, uid: u-2, generation: 1}
spec:
  rdzvEndpoint: "etcd-service:2379"
  minReplicas: 1
  maxReplicas: 3
  replicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: ExitCode
      template:
        apiVersion: v1
        kind: Pod
        spec:
          containers:
          - name: elasticjob-worker
            image: torchelastic/examples:0.2.0
            imagePullPolicy: Always
            args: ["--nproc_per_node=1", "/workspace/examples/imagenet/main.py", "--arch=resnet18"]
)";

constexpr const char* kPytorchJob = R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: elastic-example-echo, namespace: kf, uid: u-3, generation: 1}
spec:
  elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 2, maxRestarts: 100}
  runPolicy: {cleanPodPolicy: All, suspend: true}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: pytorch
            image: kubeflow/pytorch-elastic-example-echo:latest
            env: [{name: LOGLEVEL, value: DEBUG}]
            command: [python, -m, torch.distributed.run, --rdzv_backend=c10d, ./echo/echo.py]
)";

constexpr const char* kAdaptdlJob = R"(
apiVersion: adaptdl.petuum.com/v1
kind: AdaptDLJob
metadata: {name: cifar, namespace: ml, uid: u-4, generation: 1, annotations: {rubato.dev/replicas: "2"}}
spec:
  minReplicas: 1
  maxReplicas: 4
  template:
    spec:
      containers:
      - name: main
        image: cifar
        command: [python3, /root/main.py]
        env: [{name: ADAPTDL_CHECKPOINT_PATH, value: /ckpt}]
)";

std::vector<std::string> texts(const json& list) { return list.get<std::vector<std::string>>(); }

LauncherDelivery from_image() {
  LauncherDelivery delivery;
  delivery.image = "rubato:1";
  return delivery;
}

std::string env_of(const json& container, const std::string& name) {
  for (const json& one : container.value("env", json::array())) {
    if (one["name"] == name) return one["value"];
  }
  return "(absent)";
}

TEST(ElasticJobManifest, ReadsOurKind) {
  const Job job = read_job(Kind::kElasticJob, document_of(kJob));
  EXPECT_EQ(job.invalid, "");
  EXPECT_EQ(to_string(job.name), "team/mnist");
  EXPECT_EQ(job.min_replicas, 2);
  EXPECT_EQ(job.replicas, 3);
  EXPECT_EQ(job.max_replicas, 4);
  EXPECT_EQ(job.nproc, "2");
  EXPECT_EQ(job.seen_version, 17u);
}

TEST(ElasticJobManifest, FillsInReplicasAndKeepsThemInRange) {
  json document = document_of(kJob);
  document["spec"]["replicas"] = 9;
  EXPECT_EQ(read_job(Kind::kElasticJob, document).replicas, 4);
  EXPECT_NE(read_job(Kind::kElasticJob, document).range_note.find("9 workers are asked for"), std::string::npos);
  document["spec"].erase("minReplicas");
  document["spec"].erase("maxReplicas");
  const Job fixed = read_job(Kind::kElasticJob, document);
  EXPECT_EQ(fixed.range_note, "");
  EXPECT_EQ(fixed.min_replicas, 9);
  EXPECT_EQ(fixed.max_replicas, 9);
  document["spec"]["minReplicas"] = 10;
  document["spec"]["maxReplicas"] = 4;
  EXPECT_NE(read_job(Kind::kElasticJob, document).invalid, "");
}

TEST(ElasticJobManifest, AMalformedTemplateIsRefusedNotFatal) {
  json document = document_of(kPytorchJob);
  document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = "LOGLEVEL";
  EXPECT_NE(read_job(Kind::kPytorchJob, document).invalid.find("malformed"), std::string::npos);
}

TEST(ElasticJobManifest, SaysWhatIsWrongWithAJob) {
  json document = document_of(kJob);
  document["spec"]["template"]["spec"]["containers"][0].erase("command");
  document["spec"]["template"]["spec"]["containers"][0].erase("args");
  EXPECT_NE(read_job(Kind::kElasticJob, document).invalid.find("has no command"), std::string::npos);
  document["spec"].erase("template");
  EXPECT_EQ(read_job(Kind::kElasticJob, document).invalid, "the pod template has no container");
  EXPECT_NE(read_job(Kind::kElasticJob, json::object()).invalid, "");
}

TEST(ElasticJobManifest, AStatusThatIsWrittenReadsBackAndIsNotWrittenAgain) {
  json document = document_of(kJob);
  Job job = read_job(Kind::kElasticJob, document);
  const Status status = decide(job, {}, {}, *parse_time("2026-11-16T12:00:00Z")).status;
  const json patch = status_patch(job, status);
  ASSERT_FALSE(patch.is_null());
  document.merge_patch(patch);
  job = read_job(Kind::kElasticJob, document);
  EXPECT_EQ(job.status, status);
  EXPECT_TRUE(status_patch(job, status).is_null());
}

TEST(ElasticJobManifest, PutsOurLauncherAroundTheProgram) {
  const Job job = read_job(Kind::kElasticJob, document_of(kJob));
  const json pod = make_pod(job, {1, 2, false}, from_image());
  EXPECT_EQ(pod["metadata"]["name"], "mnist-worker-1");
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"], "trainer");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "u-1");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  const json& container = pod["spec"]["containers"][0];
  const std::vector<std::string> expected{"/opt/rubato/bin/rubato",
                                          "run",
                                          "--nnodes=2:4",
                                          "--nproc-per-node=2",
                                          "--max-restarts=5",
                                          "--grace=25s",
                                          "--rdzv-id=mnist-u-1",
                                          "--rdzv-backend=embedded",
                                          "--rdzv-endpoint=*mnist-workers.team.svc:29400",
                                          "--rdzv-conf=join_timeout=604800,last_call_timeout=3,is_host=0,"
                                          "identity=mnist-worker-1",
                                          "--no-python",
                                          "python",
                                          "train.py",
                                          "--epochs",
                                          "3"};
  EXPECT_EQ(texts(container["command"]), expected);
  EXPECT_FALSE(container.contains("args"));
  EXPECT_EQ(pod["spec"]["initContainers"][0]["image"], "rubato:1");
  const Pod read = read_pod(pod);
  EXPECT_EQ(read.index, 1);
  EXPECT_EQ(read.attempt, 2);
  EXPECT_FALSE(read.is_host);
  EXPECT_EQ(read.owner_uid, "u-1");
}

TEST(ElasticJobManifest, CheckpointsHaveAVolumeAndPodsAPriority) {
  json document = document_of(kJob);
  document["spec"]["priorityClassName"] = "urgent";
  document["spec"]["checkpoint"] = {{"claim", "runs"}, {"mountPath", "/ckpt"}, {"subPath", "mnist"}};
  const json pod = make_pod(read_job(Kind::kElasticJob, document), {0, 0, true}, from_image());
  EXPECT_EQ(pod["spec"]["priorityClassName"], "urgent");
  const json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(env_of(container, "RUBATO_CHECKPOINT"), "/ckpt");
  const json mount = {{"name", "rubato-checkpoint"}, {"mountPath", "/ckpt"}, {"subPath", "mnist"}};
  EXPECT_EQ(container["volumeMounts"].back(), mount);
  EXPECT_EQ(pod["spec"]["volumes"].back()["persistentVolumeClaim"]["claimName"], "runs");
}

TEST(ElasticJobManifest, AnImageThatHasTheLauncherNeedsNoInitContainer) {
  const Job job = read_job(Kind::kElasticJob, document_of(kJob));
  LauncherDelivery delivery;
  delivery.path = "/usr/bin/rubato";
  const json pod = make_pod(job, {0, 0, true}, delivery);
  EXPECT_FALSE(pod["spec"].contains("initContainers"));
  EXPECT_EQ(pod["spec"]["containers"][0]["command"][0], "/usr/bin/rubato");
  EXPECT_TRUE(read_pod(pod).is_host);
}

TEST(ElasticJobManifest, TheServiceNamesPodsThatAreNotReady) {
  const Job job = read_job(Kind::kElasticJob, document_of(kJob));
  const std::vector<json> services = make_services(job);
  ASSERT_EQ(services.size(), 1u);
  EXPECT_EQ(services[0]["metadata"]["name"], "mnist-workers");
  EXPECT_EQ(services[0]["spec"]["clusterIP"], "None");
  EXPECT_EQ(services[0]["spec"]["publishNotReadyAddresses"], true);
}

TEST(LaunchCommand, TakesThePlaceOfTorchrun) {
  const Job job = read_job(Kind::kElasticJob, document_of(kJob));
  LaunchPlace place;
  place.binary = "rubato";
  const auto tail = [&](std::vector<std::string> program) {
    std::vector<std::string> all = launch_command(job, place, program);
    return std::vector<std::string>(all.begin() + 10, all.end());
  };
  using Argv = std::vector<std::string>;
  EXPECT_EQ(
      tail({"torchrun", "--nnodes=1:3", "--nproc_per_node", "2", "--rdzv_endpoint", "x:1", "train.py", "--nnodes=9"}),
      (Argv{"--nproc_per_node", "2", "train.py", "--nnodes=9"}));
  EXPECT_EQ(tail({"python3", "-m", "torch.distributed.run", "--standalone", "--module", "pkg.train"}),
            (Argv{"--module", "pkg.train"}));
  EXPECT_EQ(tail({"/opt/conda/bin/python", "-m", "pkg"}), (Argv{"--no-python", "/opt/conda/bin/python", "-m", "pkg"}));
  EXPECT_EQ(tail({"torchrun", "-t", "3", "-r", "1", "--nnodes=9", "train.py"}),
            (Argv{"-t", "3", "-r", "1", "train.py"}));
  EXPECT_EQ(tail({"python", "-u", "-X", "dev", "-m", "torch.distributed.run", "--nnodes", "2", "train.py"}),
            (Argv{"train.py"}));
  place.grace_s = 120;
  EXPECT_EQ(launch_command(job, place, {"python", "train.py"})[5], "--grace=115s");
}

TEST(LaunchCommand, ALauncherInAShellIsRefused) {
  json document = document_of(kJob);
  json& container = document["spec"]["template"]["spec"]["containers"][0];
  container["command"] = {"bash", "-c", "pip install x && torchrun --standalone train.py"};
  container.erase("args");
  EXPECT_NE(read_job(Kind::kElasticJob, document).invalid.find("torchrun in a shell"), std::string::npos);
  container["command"] = {"bash", "-c", "pip install x && python train.py"};
  EXPECT_EQ(read_job(Kind::kElasticJob, document).invalid, "");
  container.erase("command");
  container["args"] = {"--epochs=3"};
  EXPECT_NE(read_job(Kind::kElasticJob, document).invalid.find("args without a command"), std::string::npos);
}

TEST(AdoptTorchElasticJob, TheSwappedLauncherTakesThePlaceOfTheImagesOwn) {
  json document = document_of(kTorchElasticJob);
  document["metadata"]["annotations"]["rubato.dev/launcher"] = "rubato";
  const Job job = read_job(Kind::kTorchElasticJob, document);
  ASSERT_EQ(job.invalid, "");
  const std::vector<std::string> command =
      texts(make_pod(job, {0, 0, true}, from_image())["spec"]["containers"][0]["command"]);
  EXPECT_EQ(std::count(command.begin(), command.end(), "--no-python"), 0);
  EXPECT_EQ(
      std::vector<std::string>(command.end() - 3, command.end()),
      (std::vector<std::string>{"--nproc_per_node=1", "/workspace/examples/imagenet/main.py", "--arch=resnet18"}));
}

TEST(ElasticJobManifest, EachNameThatAJobMayHaveGivesNamesOfItsObjects) {
  json document = document_of(kJob);
  const auto job_named = [&](const std::string& name) {
    document["metadata"]["name"] = name;
    return read_job(Kind::kElasticJob, document);
  };
  EXPECT_EQ(worker_name(job_named(std::string(51, 'a')), 9999), std::string(51, 'a') + "-worker-9999");
  std::set<std::string> bases;
  const std::vector<std::string> names{std::string(52, 'a'),
                                       std::string(53, 'a'),
                                       std::string(63, 'a'),
                                       std::string(253, 'a'),
                                       "llama-3.1",
                                       "llama-3-1",
                                       "7b",
                                       "j-7b",
                                       std::string(41, 'b') + "-.-" + "c"};
  for (const std::string& name : names) {
    const Job job = job_named(name);
    EXPECT_EQ(job.invalid, "") << name;
    const std::string base = base_name(name);
    bases.insert(base);
    EXPECT_LE(base.size(), 51u);
    EXPECT_EQ(base.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos) << base;
    EXPECT_TRUE(base.front() >= 'a' && base.front() <= 'z') << base;
    json pod = make_pod(job, {0, 0, true}, from_image());
    EXPECT_EQ(pod["metadata"]["name"], base + "-worker-0");
    EXPECT_LE(pod["metadata"]["labels"][kLabelJob].get<std::string>().size(), 63u);
    EXPECT_EQ(read_pod(pod).job, job.name) << "its pods lead to it";
    EXPECT_EQ(read_pod(pod).template_hash, job.template_hash);
    EXPECT_EQ(make_services(job)[0]["metadata"]["name"], base + "-workers");
  }
  EXPECT_EQ(bases.size(), names.size());
}

TEST(ElasticJobManifest, TheCopierIsAdmittedWhereTheTrainerIs) {
  json document = document_of(kJob);
  json& spec = document["spec"]["template"]["spec"];
  const json whole = {{"cpu", "2"}, {"memory", "4Gi"}, {"nvidia.com/gpu", 1}};
  spec["containers"][0]["resources"] = {{"requests", whole}, {"limits", whole}};
  const json copier =
      make_pod(read_job(Kind::kElasticJob, document), {0, 0, true}, from_image())["spec"]["initContainers"][0];
  const json expected = {{"cpu", "2"}, {"memory", "4Gi"}};
  EXPECT_EQ(copier["resources"]["limits"], expected);
  EXPECT_EQ(copier["resources"]["requests"], expected);
  EXPECT_EQ(copier["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
  EXPECT_EQ(copier["securityContext"]["capabilities"]["drop"][0], "ALL");
  EXPECT_EQ(copier["securityContext"]["runAsNonRoot"], true);
  spec["securityContext"]["runAsUser"] = 0;
  spec["containers"][0].erase("resources");
  const json root =
      make_pod(read_job(Kind::kElasticJob, document), {0, 0, true}, from_image())["spec"]["initContainers"][0];
  EXPECT_FALSE(root["securityContext"].contains("runAsNonRoot"));
  EXPECT_FALSE(root.contains("resources"));
}

TEST(ElasticJobManifest, AReadOnlyRootGetsATemporaryFolder) {
  json document = document_of(kJob);
  json& spec = document["spec"]["template"]["spec"];
  json& trainer = spec["containers"][0];
  const auto mounts = [&] {
    const json pod = make_pod(read_job(Kind::kElasticJob, document), {}, {}, "");
    return pod["spec"]["containers"][0].value("volumeMounts", json::array());
  };
  EXPECT_TRUE(mounts().empty());
  trainer["securityContext"]["readOnlyRootFilesystem"] = true;
  ASSERT_EQ(mounts().size(), 1u);
  EXPECT_EQ(mounts()[0]["mountPath"], "/tmp");
  trainer["volumeMounts"] = json::array({{{"name", "scratch"}, {"mountPath", "/tmp"}}});
  EXPECT_EQ(mounts().size(), 1u);
  trainer["volumeMounts"] = json::array();
  trainer["env"] = json::array({{{"name", "TMPDIR"}, {"value", "/scratch"}}});
  EXPECT_TRUE(mounts().empty());
}

// The cluster autoscaler keeps a node for the sake of any other volume of its own disk.
TEST(ElasticJobManifest, NamesItsVolumesBesideThoseThatMayGoAnyway) {
  constexpr const char* kMayGo = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
  json document = document_of(kJob);
  json& pod_template = document["spec"]["template"];
  LauncherDelivery delivery;
  delivery.image = "rubato:1";
  const auto named = [&] {
    return make_pod(read_job(Kind::kElasticJob, document), {}, delivery, "")["metadata"]["annotations"][kMayGo];
  };
  EXPECT_EQ(named(), "rubato-launcher");
  pod_template["metadata"]["annotations"][kMayGo] = "scratch";
  pod_template["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = true;
  EXPECT_EQ(named(), "scratch,rubato-launcher,rubato-tmp");
}

// RDMA needs the node's network.
TEST(ElasticJobManifest, PodsInTheirNodesNetworkFindEachOther) {
  json document = document_of(kJob);
  document["spec"]["template"]["spec"]["hostNetwork"] = true;
  json spec = make_pod(read_job(Kind::kElasticJob, document), {}, {}, "")["spec"];
  EXPECT_EQ(spec["dnsPolicy"], "ClusterFirstWithHostNet");
  EXPECT_EQ(spec["containers"][0]["ports"][0]["hostPort"], kRendezvousPort);
  document["spec"]["template"]["spec"]["dnsPolicy"] = "None";
  spec = make_pod(read_job(Kind::kElasticJob, document), {}, {}, "")["spec"];
  EXPECT_EQ(spec["dnsPolicy"], "None");
}

TEST(AdoptTorchElasticJob, KeepsItsCommandAndGetsTheFlagsOfItsController) {
  const Job job = read_job(Kind::kTorchElasticJob, document_of(kTorchElasticJob));
  ASSERT_EQ(job.invalid, "");
  EXPECT_EQ(job.replicas, 2);
  EXPECT_TRUE(job.ends_by_exit_code);
  const json pod = make_pod(job, {1, 0, false}, from_image());
  EXPECT_EQ(pod["metadata"]["name"], "imagenet-worker-1");
  EXPECT_EQ(pod["metadata"]["labels"]["replica-index"], "1");
  const json& container = pod["spec"]["containers"][0];
  EXPECT_FALSE(container.contains("command"));
  EXPECT_EQ(texts(container["args"]),
            (std::vector<std::string>{"--rdzv_backend=etcd", "--rdzv_endpoint=etcd-service:2379", "--rdzv_id=imagenet",
                                      "--nnodes=1:3", "--nproc_per_node=1", "/workspace/examples/imagenet/main.py",
                                      "--arch=resnet18"}));
  EXPECT_EQ(container["ports"][0]["name"], "elasticjob-port");
  EXPECT_FALSE(pod["spec"].contains("initContainers"));
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  EXPECT_EQ(make_services(job).size(), 2u);
}

TEST(AdoptPytorchJob, GetsTheVariablesOfItsController) {
  const Job job = read_job(Kind::kPytorchJob, document_of(kPytorchJob));
  ASSERT_EQ(job.invalid, "");
  EXPECT_TRUE(job.suspended);
  EXPECT_EQ(job.clean_pods, CleanPods::kAll);
  const json pod = make_pod(job, {0, 0, true}, from_image());
  const json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(container["command"],
            document_of(
                kPytorchJob)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]);
  EXPECT_EQ(env_of(container, "PET_NNODES"), "1:2");
  EXPECT_EQ(env_of(container, "PET_RDZV_ENDPOINT"), "elastic-example-echo-worker-0:23456");
  EXPECT_EQ(env_of(container, "PET_RDZV_ID"), "elastic-example-echo");
  EXPECT_EQ(env_of(container, "PET_MAX_RESTARTS"), "100");
  EXPECT_EQ(env_of(container, "LOGLEVEL"), "DEBUG");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "OnFailure");
  EXPECT_EQ(pod["metadata"]["labels"]["training.kubeflow.org/replica-type"], "worker");
}

TEST(AdoptPytorchJob, HasKubeflowsDefaults) {
  json document = document_of(kPytorchJob);
  document["spec"]["runPolicy"].erase("cleanPodPolicy");
  document["spec"]["elasticPolicy"].erase("minReplicas");
  document["spec"]["nprocPerNode"] = "gpu";
  document["spec"]["pytorchReplicaSpecs"]["Worker"].erase("restartPolicy");
  const Job job = read_job(Kind::kPytorchJob, document);
  EXPECT_EQ(job.clean_pods, CleanPods::kNone);
  EXPECT_EQ(job.min_replicas, 2);
  const json pod = make_pod(job, {0, 0, true}, from_image());
  EXPECT_EQ(pod["spec"]["restartPolicy"], "OnFailure");
  EXPECT_EQ(env_of(pod["spec"]["containers"][0], "PET_NPROC_PER_NODE"), "gpu");
}

TEST(AdoptPytorchJob, AnAnnotationSwapsInOurLauncher) {
  json document = document_of(kPytorchJob);
  document["metadata"]["annotations"]["rubato.dev/launcher"] = "rubato";
  const Job job = read_job(Kind::kPytorchJob, document);
  const json pod = make_pod(job, {0, 0, true}, from_image());
  const std::vector<std::string> command = texts(pod["spec"]["containers"][0]["command"]);
  EXPECT_EQ(command.front(), "/opt/rubato/bin/rubato");
  EXPECT_EQ(command.back(), "./echo/echo.py");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
}

TEST(AdoptPytorchJob, OneWithoutAnElasticPolicyIsLeftAlone) {
  json document = document_of(kPytorchJob);
  document["spec"].erase("elasticPolicy");
  EXPECT_TRUE(read_job(Kind::kPytorchJob, document).ignored);
}

TEST(AdoptPytorchJob, OneThatAnotherManagesIsLeftAlone) {
  json document = document_of(kPytorchJob);
  document["spec"]["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  EXPECT_TRUE(read_job(Kind::kPytorchJob, document).ignored);
  document["spec"]["runPolicy"]["managedBy"] = "kubeflow.org/training-operator";
  EXPECT_FALSE(read_job(Kind::kPytorchJob, document).ignored);
}

TEST(AdoptPytorchJob, ItsStatusIsWrittenAsKubeflowWritesIt) {
  json document = document_of(kPytorchJob);
  document["spec"]["runPolicy"].erase("suspend");
  Job job = read_job(Kind::kPytorchJob, document);
  const WallTime now = *parse_time("2026-11-16T12:00:00Z");
  EXPECT_EQ(job.status.observed_generation, 0);
  document.merge_patch(status_patch(job, decide(job, {}, {}, now).status));
  EXPECT_EQ(document["status"]["conditions"][0]["type"], "Created");
  job = read_job(Kind::kPytorchJob, document);
  EXPECT_EQ(job.status.observed_generation, 1);  // `rubato why` knows that an operator has seen it
  EXPECT_TRUE(status_patch(job, decide(job, {}, {}, now).status).is_null());
  // kubectl shows the last one as the job's state; an autoscaler of pods needs the selector.
  EXPECT_EQ(document["status"]["conditions"].back()["type"], "Created");
  EXPECT_EQ(document["status"]["replicaStatuses"]["Worker"]["selector"],
            "training.kubeflow.org/job-name=elastic-example-echo,"
            "training.kubeflow.org/operator-name=pytorchjob-controller,"
            "training.kubeflow.org/replica-type=worker");
  Status running = decide(job, {}, {}, now).status;
  running.phase = Phase::kRunning;
  EXPECT_EQ(status_patch(job, running)["status"]["conditions"].back()["type"], "Running");
}

// As AdaptDL's own examples are: a name that the server completes, and a template.
TEST(AdoptAdaptdlJob, OneThatNamesNoSizeMayGrow) {
  json document = document_of(kAdaptdlJob);
  for (const char* key : {"minReplicas", "maxReplicas"}) document["spec"].erase(key);
  document["metadata"].erase("annotations");
  const Job job = read_job(Kind::kAdaptdlJob, document);
  EXPECT_EQ(job.replicas, 1);
  ASSERT_TRUE(job.adaptive);
  EXPECT_EQ(job.adaptive->most, 64);
  document["metadata"]["annotations"][kAnnotationReplicas] = "100";
  EXPECT_EQ(read_job(Kind::kAdaptdlJob, document).replicas, 100);
  document["spec"]["maxReplicas"] = 4;
  EXPECT_EQ(read_job(Kind::kAdaptdlJob, document).replicas, 4);
}

TEST(AdoptAdaptdlJob, GetsTheVariablesOfItsController) {
  json document = document_of(kAdaptdlJob);
  Job job = read_job(Kind::kAdaptdlJob, document);
  ASSERT_EQ(job.invalid, "");
  EXPECT_EQ(job.replicas, 2);
  const WallTime now = *parse_time("2026-11-16T12:00:00Z");
  const Decision decision = decide(job, {}, {}, now);
  ASSERT_EQ(decision.make.size(), 2u);
  const json pod = make_pod(job, decision.make[1], from_image());
  const json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(texts(container["command"]), (std::vector<std::string>{"python3", "/root/main.py"}));
  EXPECT_EQ(env_of(container, "ADAPTDL_CHECKPOINT_PATH"), "/ckpt");
  EXPECT_EQ(env_of(container, "ADAPTDL_JOB_ID"), "ml/cifar");
  EXPECT_EQ(env_of(container, "ADAPTDL_MASTER_ADDR"), "cifar-worker-0");
  EXPECT_EQ(env_of(container, "ADAPTDL_REPLICA_RANK"), "1");
  EXPECT_EQ(env_of(container, "ADAPTDL_NUM_REPLICAS"), "2");
  EXPECT_EQ(env_of(container, "ADAPTDL_NUM_RESTARTS"), "0");
  EXPECT_EQ(env_of(container, "ADAPTDL_MASTER_PORT"), "47000");
  EXPECT_EQ(container["volumeMounts"][0]["mountPath"], "/dev/shm");
  EXPECT_EQ(pod["spec"]["volumes"][0]["emptyDir"]["medium"], "Memory");
  EXPECT_EQ(pod["metadata"]["annotations"]["adaptdl/rank"], "1");
  // Its status is written as AdaptDL's, and carries the group.
  document.merge_patch(status_patch(job, decision.status));
  EXPECT_EQ(document["status"]["phase"], "Pending");
  EXPECT_EQ(read_job(Kind::kAdaptdlJob, document).status.groups, 1);
}

TEST(Scale, EachKindHasItsOwnFieldForIt) {
  json ours = document_of(kJob), torch = document_of(kTorchElasticJob), pytorch = document_of(kPytorchJob),
       adaptdl = document_of(kAdaptdlJob);
  EXPECT_EQ(scale_patch(Kind::kElasticJob, 2).subresource, "scale");
  ours.merge_patch(json::parse(scale_patch(Kind::kElasticJob, 2).text));
  EXPECT_EQ(read_job(Kind::kElasticJob, ours).replicas, 2);
  torch.merge_patch(json::parse(scale_patch(Kind::kTorchElasticJob, 3).text));
  EXPECT_EQ(read_job(Kind::kTorchElasticJob, torch).replicas, 3);
  pytorch.merge_patch(json::parse(scale_patch(Kind::kPytorchJob, 1).text));
  EXPECT_EQ(read_job(Kind::kPytorchJob, pytorch).replicas, 1);
  adaptdl.merge_patch(json::parse(scale_patch(Kind::kAdaptdlJob, 4).text));
  EXPECT_EQ(read_job(Kind::kAdaptdlJob, adaptdl).replicas, 4);
}

TEST(SubmitManifest, ReadsAllDocumentsAndPointsAtWrongOnes) {
  const std::string text = "kind: A\napiVersion: v1\nmetadata: {name: a}\n---\n# nothing\n---\n" + std::string(kJob);
  const std::vector<json> documents = read_documents(text, "job.yaml");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[1]["metadata"]["name"], "mnist");
  EXPECT_EQ(read_documents("kind: A\napiVersion: v1\nmetadata: {generateName: a-}\n", "job.yaml").size(), 1u);
  EXPECT_THROW(read_documents("kind: A\napiVersion: v1\nmetadata: {labels: {}}\n", "job.yaml"), Error);
  try {
    read_documents("kind: A\napiVersion: v1\nmetadata: {name: a}\n---\nkind: B\n", "job.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message, "the document has no apiVersion");
    EXPECT_EQ(error.where, "job.yaml:5:1");
  }
}

TEST(SubmitManifest, ModesOfFilesAreOctalAsToKubectl) {
  const std::string text =
      std::string(kJob) + "      volumes: [{name: k, secret: {secretName: s, defaultMode: 0400}}]\n";
  const std::vector<json> documents = read_documents(text, "job.yaml");
  EXPECT_EQ(documents[0]["spec"]["template"]["spec"]["volumes"][0]["secret"]["defaultMode"], 0400);
}

// kubectl get -o yaml, and what tools put behind the separator.
TEST(SubmitManifest, NamesFieldsThatTheServerWouldDrop) {
  const json sent =
      document_of("{metadata: {name: a}, spec: {minReplica: 1, suspend: null, list: [{a: 1, b: 2}, {c: 3}]}}");
  json kept = document_of("{metadata: {uid: u}, spec: {backoffLimit: 3, list: [{a: 1}, {c: 3}]}}");
  EXPECT_EQ(dropped_fields(sent, kept), (std::vector<std::string>{"spec.list[0].b", "spec.minReplica"}));
  kept.merge_patch(sent);
  EXPECT_EQ(dropped_fields(sent, kept), std::vector<std::string>{});
}

TEST(SubmitManifest, ReadsListsAndSeparatorsWithComments) {
  const std::string text =
      "--- # first\nkind: A\napiVersion: v1\nmetadata: {name: a}\n--- # list\napiVersion: v1\n"
      "kind: List\nitems:\n- {kind: B, apiVersion: v1, metadata: {name: b}}\n- {kind: C}\n";
  try {
    read_documents(text, "job.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where, "job.yaml:10:3");
  }
  const std::vector<json> documents = read_documents(text.substr(0, text.find("- {kind: C}")), "job.yaml");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[1]["metadata"]["name"], "b");
  EXPECT_THROW(read_documents("{kind: List, apiVersion: v1}", "job.yaml"), Error);
}

}  // namespace
}  // namespace rubato::elasticjob
