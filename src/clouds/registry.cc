// Every kind of provider that a cluster file may name.
#include <array>

#include "clouds/aws/ec2_head.h"
#include "clouds/aws/ec2_instances.h"
#include "clouds/aws/ec2_survey.h"
#include "clouds/aws/spot_prices.h"
#include "clouds/gcp/gcp_head.h"
#include "clouds/gcp/gcp_instances.h"
#include "clouds/gcp/gcp_survey.h"
#include "clouds/kinds.h"
#include "clouds/kubernetes/pod_head.h"
#include "clouds/kubernetes/pod_machines.h"
#include "provider/external_head.h"
#include "provider/external_instances.h"
#include "provider/host_list.h"

namespace rubato {
namespace {

// Of Ray's, known by name alone.
constexpr ProviderKind named(std::string_view type) { return {.type = type, .has_open_section = true}; }
constexpr ProviderKind kStaroid = named("staroid");
constexpr ProviderKind kSpark = named("spark");
constexpr ProviderKind kFake = named("fake_multinode");
constexpr ProviderKind kFakeDocker = named("fake_multinode_docker");
constexpr ProviderKind kReadonly = named("readonly");
constexpr ProviderKind kKuberay = named("kuberay");
constexpr ProviderKind kDocker = named("docker");

// What it is, who makes its machines, who the head's from a person's machine, and who looks at what there is; null:
// nobody here.
struct Registration {
  const ProviderKind* kind;
  provider::MakeInstances make = nullptr;
  provider::HeadMachineMaker head = {};
  provider::CloudSurvey survey = {};
};

constexpr std::array<Registration, 15> kRegistrations{{
    {&clouds::kLocal, provider::make_host_list},
    {&clouds::kAws,
     clouds::make_ec2_instances,
     {clouds::make_ec2_head, clouds::end_ec2_head},
     {clouds::list_ec2, clouds::check_ec2, clouds::ec2_prices}},
    {&clouds::kGcp,
     clouds::make_gcp_instances,
     {clouds::make_gcp_head, clouds::end_gcp_head},
     {clouds::list_gcp, clouds::check_gcp}},
    {&clouds::kAzure},
    {&clouds::kKubernetes,
     clouds::make_pod_instances,
     {clouds::make_pod_head, clouds::end_pod_head, clouds::find_pod_head}},
    {&clouds::kVsphere},
    {&clouds::kAliyun},
    {&clouds::kExternal,
     provider::make_external_instances,
     {provider::make_external_head, provider::end_external_head}},
    {&kStaroid},
    {&kSpark},
    {&kFake},
    {&kFakeDocker},
    {&kReadonly},
    {&kKuberay},
    {&kDocker},
}};

}  // namespace

std::span<const ProviderKind* const> provider_kinds() {
  static constexpr auto kKinds = [] {
    std::array<const ProviderKind*, kRegistrations.size()> kinds{};
    for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = kRegistrations[i].kind;
    return kinds;
  }();
  return kKinds;
}

provider::MakeInstances provider::instances_maker(std::string_view provider_type) {
  for (const Registration& one : kRegistrations) {
    if (one.kind->type == provider_type) return one.make;
  }
  return nullptr;
}

provider::HeadMachineMaker provider::head_machine_maker(std::string_view provider_type) {
  for (const Registration& one : kRegistrations) {
    if (one.kind->type == provider_type) return one.head;
  }
  return {};
}

provider::CloudSurvey provider::cloud_survey(std::string_view provider_type) {
  for (const Registration& one : kRegistrations) {
    if (one.kind->type == provider_type) return one.survey;
  }
  return {};
}

std::span<const ConfigKey> common_provider_keys() {
  using enum KeyType;
  using enum KeyEra;
  static constexpr std::array<ConfigKey, 13> kRows{{
      {"provider", kSection, "", "where machines come from"},
      {"provider.type", kText, "", "aws, gcp, azure, kubernetes, vsphere, aliyun, local or external"},
      {"provider.use_internal_ips", kBool, "false", "reach the nodes at their private addresses"},
      {"provider.use_external_head_ip", kBool, "false",
       "reach the head at its public address although use_internal_ips is set"},
      {"provider.disable_node_updaters", kBool, "false", "start nodes, but do not set them up over SSH"},
      {"provider.disable_launch_config_check", kBool, "false", "keep nodes whose configuration has changed"},
      {"provider.foreground_node_launch", kBool, "false",
       "launch nodes one after the other; Rubato never blocks on a launch"},
      {"provider.worker_liveness_check", kBool, "true", "replace nodes that do not answer"},
      {"provider._config_cache_path", kAny, "", "written by Ray into its cache", kWritten},
      {"provider.region", kText, "us-west-2 (aws), us-west1 (gcp)", "the cloud's region", kShared, "", "",
       "aws gcp aliyun"},
      {"provider.availability_zone", kText, "all of the region; without one, us-west1-a (gcp)",
       "zones to try in order, with commas between", kShared, "", "", "aws gcp azure aliyun"},
      {"provider.cache_stopped_nodes", kBool, "true (aws), false (others)",
       "stop nodes instead of ending them, and start them again later", kShared, "", "", "aws gcp azure aliyun"},
      {"provider.ssh_from", kAny, "your public address",
       "from where SSH to the head is allowed: an address or range (203.0.113.0/24), or a list of them", kOurs, "", "",
       "aws gcp"},
  }};
  return kRows;
}

}  // namespace rubato
