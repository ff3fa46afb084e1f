// The tables of `rubato operator` and `rubato k8s …`.
#include "cli/kubernetes_command.h"

namespace rubato::cli {
namespace {

constexpr std::string_view kAdoptChoices =
    "elasticjobs.elastic.pytorch.org adaptdljobs.adaptdl.petuum.com pytorchjobs.kubeflow.org";

std::vector<Flag> with_access(std::vector<Flag> flags) {
  flags.push_back({.name = "kubeconfig",
                   .kind = FlagKind::kValue,
                   .value = "FILE",
                   .help = "instead of KUBECONFIG and ~/.kube/config",
                   .group = "Cluster"});
  flags.push_back({.name = "context",
                   .kind = FlagKind::kValue,
                   .value = "NAME",
                   .help = "instead of the current one",
                   .group = "Cluster"});
  return flags;
}

Flag adopt_flag() {
  return {.name = "adopt",
          .kind = FlagKind::kRepeat,
          .value = "KIND",
          .help = "also run these jobs, in the place of their own controller",
          .choices = kAdoptChoices};
}

std::vector<Flag> deployment_flags() {
  return {{.name = "namespace",
           .kind = FlagKind::kValue,
           .value = "NS",
           .help = "where the operator itself lives",
           .default_text = "rubato-system"},
          {.name = "image",
           .kind = FlagKind::kValue,
           .value = "IMAGE",
           .help = "the operator's image (deploy/Dockerfile); pods get the launcher from it",
           .default_text = "rubato:VERSION"},
          {.name = "watch",
           .kind = FlagKind::kValue,
           .value = "NS",
           .help = "jobs of this namespace only, with rights there only",
           .default_text = "all namespaces"},
          {.name = "replicas",
           .kind = FlagKind::kValue,
           .value = "N",
           .help = "operators; one acts, the others stand by",
           .default_text = "1"},
          adopt_flag()};
}

}  // namespace

const Command& operator_table() {
  static const Command table{
      .name = "operator",
      .summary = "run elastic jobs on Kubernetes: the operator itself",
      .usage = "rubato operator [--namespace NS] [--adopt KIND ...] [--leader-elect]",
      .about =
          "Watches ElasticJobs (rubato.dev/v1) and makes, replaces, scales and cleans up their pods.\n"
          "Runs inside the cluster after 'rubato k8s install', or anywhere with a kubeconfig. It keeps no\n"
          "state: kill it at any time. A job that does not change costs no call to the API server.",
      .flags = with_access({{.name = "namespace",
                             .kind = FlagKind::kValue,
                             .value = "NS",
                             .help = "only the jobs of this namespace",
                             .default_text = "all"},
                            adopt_flag(),
                            {.name = "leader-elect", .help = "wait until no other operator acts (a Lease)"},
                            {.name = "lease-namespace",
                             .kind = FlagKind::kValue,
                             .value = "NS",
                             .help = "where the Lease is",
                             .default_text = "the context's, or the operator's own"},
                            {.name = "supervisor-url",
                             .kind = FlagKind::kValue,
                             .value = "URL",
                             .help = "how pods reach this operator: workers of adaptive jobs report there; its port "
                                     "is listened on",
                             .default_text = "they do not report"},
                            {.name = "launcher-image",
                             .kind = FlagKind::kValue,
                             .value = "IMAGE",
                             .help = "pods copy the launcher from this image (an init container)"},
                            {.name = "launcher-path",
                             .kind = FlagKind::kValue,
                             .value = "PATH",
                             .help = "where the images of the workers have it, without --launcher-image",
                             .default_text = "rubato"}}),
      .examples = {{"on your machine, for one namespace", "rubato operator --namespace training"},
                   {"PyTorchJobs too", "rubato operator --adopt pytorchjobs.kubeflow.org"}}};
  return table;
}

const Command& k8s_install_table() {
  static const Command table{
      .name = "k8s install",
      .summary = "install the operator on a Kubernetes cluster, or upgrade it",
      .usage = "rubato k8s install [--image IMAGE] [--namespace NS] [--watch NS]",
      .about =
          "Applies the CRD of ElasticJobs, a service account with the rights that it needs, and the operator's\n"
          "deployment. The same command again upgrades. 'rubato k8s manifests' prints what it applies.",
      .flags = with_access(deployment_flags()),
      .examples = {{"install", "rubato k8s install --image registry.example.com/rubato:0.1.0"},
                   {"for one namespace", "rubato k8s install --image IMAGE --namespace training --watch training"}}};
  return table;
}

const Command& k8s_uninstall_table() {
  static const Command table{
      .name = "k8s uninstall",
      .summary = "remove the operator from a Kubernetes cluster; jobs stay",
      .usage = "rubato k8s uninstall [--purge] [--namespace NS] [--watch NS]",
      .about =
          "Removes the operator and its rights. Jobs and their pods go on without it, and the CRD stays, unless\n"
          "--purge: that deletes the CRD, and with it every ElasticJob of the cluster and its pods.",
      .flags = with_access({{.name = "purge", .help = "also delete the CRD, and so all ElasticJobs"},
                            {.name = "namespace",
                             .kind = FlagKind::kValue,
                             .value = "NS",
                             .help = "where the operator lives",
                             .default_text = "rubato-system"},
                            {.name = "watch",
                             .kind = FlagKind::kValue,
                             .value = "NS",
                             .help = "the namespace whose jobs it runs",
                             .default_text = "as it was installed with"}}),
      .examples = {{"the operator only", "rubato k8s uninstall"}, {"everything", "rubato k8s uninstall --purge"}}};
  return table;
}

const Command& k8s_manifests_table() {
  static const Command table{
      .name = "k8s manifests",
      .summary = "print what 'rubato k8s install' applies, as YAML",
      .usage = "rubato k8s manifests [--crd] [--image IMAGE] [--namespace NS] [--watch NS]",
      .about = "For kubectl apply -f -, or for a repository of manifests. It needs no network.",
      .flags =
          [] {
            std::vector<Flag> flags = deployment_flags();
            flags.push_back({.name = "crd", .help = "only the CRD"});
            flags.push_back({.name = "helm", .help = "as the templates of deploy/helm/rubato", .hidden = true});
            return flags;
          }(),
      .examples = {{"apply with kubectl", "rubato k8s manifests --image IMAGE | kubectl apply -f -"},
                   {"the CRD", "rubato k8s manifests --crd > crd.yaml"}}};
  return table;
}

const Command& k8s_logs_table() {
  static const Command table{
      .name = "k8s logs",
      .summary = "print the log of a worker of an ElasticJob on Kubernetes",
      .usage = "rubato k8s logs JOB [--worker N] [-f] [--namespace NS]",
      .positional = {.name = "JOB", .help = "the ElasticJob's name", .at_most = 1},
      .flags = with_access(
          {{.name = "worker", .kind = FlagKind::kValue, .value = "N", .help = "which worker", .default_text = "0"},
           {.name = "follow", .short_name = 'f', .help = "go on as more comes"},
           {.name = "container", .kind = FlagKind::kValue, .value = "NAME", .help = "of a pod with several"},
           {.name = "namespace",
            .kind = FlagKind::kValue,
            .value = "NS",
            .help = "the job's",
            .default_text = "the context's"}}),
      .examples = {{"worker 0, as it comes", "rubato k8s logs mnist -f"}}};
  return table;
}

const Command& k8s_scale_table() {
  static const Command table{
      .name = "k8s scale",
      .summary = "change how many workers a job on Kubernetes has, while it trains",
      .usage = "rubato k8s scale JOB WORKERS [--namespace NS]",
      .about = "For ElasticJobs and the kinds that --adopt names; between the job's minReplicas and maxReplicas.",
      .positional = {.name = "JOB WORKERS", .help = "the job's name, and how many", .at_most = 2},
      .flags = with_access({{.name = "namespace",
                             .kind = FlagKind::kValue,
                             .value = "NS",
                             .help = "the job's",
                             .default_text = "the context's"}}),
      .examples = {{"four workers", "rubato k8s scale mnist 4"}}};
  return table;
}

const Command& k8s_copy_binary_table() {
  static const Command table{.name = "k8s copy-binary",
                             .summary = "copy this program to a path: what the init container of a pod does",
                             .usage = "rubato k8s copy-binary PATH",
                             .positional = {.name = "PATH", .help = "where to", .at_most = 1},
                             .hidden = true};
  return table;
}

}  // namespace rubato::cli
