#include "petctl/job_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "petctl/user_data.h"
#include "rest/base64.h"

namespace rubato::petctl {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

constexpr size_t kJobNameMax = 48;
constexpr size_t kRoleNameMax = 64;  // IAM's
constexpr int kSizeMax = 1000;
constexpr size_t kDigestDigits = 12;

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

void check_sizes(const JobRequest& request, int least, int most) {
  if (request.size < 1 || most > kSizeMax || least < 1 || least > request.size || request.size > most) {
    throw Error(ErrorCode::kUsage, fmt::format("a size of {} between {} and {} cannot be", request.size, least, most),
                "", fmt::format("1 <= --min_size <= --size <= --max_size <= {}", kSizeMax));
  }
}

std::string below(const std::string& prefix, const std::string& rest) {
  return prefix.empty() ? rest : prefix + "/" + rest;
}

// The name of what is uploaded: of a folder, that of its archive.
std::string uploaded_name(const Script& script) {
  const std::filesystem::path path = std::filesystem::path(script.source).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (script.kind != Script::Kind::kFolder) return name;
  return (name.empty() || name == "." || name == ".." ? "folder" : name) + ".tar.zst";
}

NodeOrder order_of(const JobRequest& request, const Specs& specs, const JobPlan& plan, int least, int most) {
  NodeOrder order;
  order.job = request.name;
  order.region = request.region;
  order.s3_endpoint = request.s3_endpoint;
  order.endpoints = request.endpoints;
  order.bucket = plan.bucket;
  order.prefix = plan.prefix;
  if (request.rdzv_group) order.groups.push_back(group_name(request.name, HostRole::kRdzv));
  order.groups.push_back(group_name(request.name, HostRole::kWorker));
  order.size = request.size;
  order.min_size = least;
  order.max_size = most;
  order.gpu = specs.worker.accelerator == Accelerator::kGpu;
  order.nproc = !request.nproc.empty() ? request.nproc : order.gpu ? "gpu" : "1";
  order.max_restarts = request.max_restarts;
  order.keep = request.keep;
  order.docker_image = specs.worker.docker_image;
  order.efs = specs.worker.efs_file_system_id;
  order.script = request.script;
  if (!plan.script_key.empty()) {
    const bool folder = request.script.kind == Script::Kind::kFolder;
    order.script.kind = folder ? Script::Kind::kS3Tar : Script::Kind::kS3File;
    order.script.source = fmt::format("s3://{}/{}", plan.bucket, plan.script_key);
  }
  order.args = request.args;
  return order;
}

// A rendezvous host runs no script: it is told no more than it needs.
NodeOrder rdzv_order(NodeOrder order) {
  order.role = HostRole::kRdzv;
  order.docker_image.clear();
  order.efs.clear();
  order.gpu = false;
  order.script = {Script::Kind::kOnHost, "", ""};
  order.args.clear();
  return order;
}

Json actions_on(Json actions, Json resources, const char* id) {
  return {{"Sid", id}, {"Effect", "Allow"}, {"Action", std::move(actions)}, {"Resource", std::move(resources)}};
}

Json writing_statements(const JobPlan& plan, const std::string& partition) {
  Json out = Json::array();
  out.push_back(actions_on({"s3:PutObject", "s3:AbortMultipartUpload"},
                           fmt::format("arn:{}:s3:::{}/{}/rubato/*", partition, plan.bucket, plan.prefix),
                           "RubatoStatusAndLogs"));
  Json list = actions_on({"s3:ListBucket"}, fmt::format("arn:{}:s3:::{}", partition, plan.bucket), "RubatoListStatus");
  list["Condition"] = {{"StringLike", {{"s3:prefix", fmt::format("{}/*", plan.prefix)}}}};
  out.push_back(std::move(list));
  Json groups = Json::array();
  for (const GroupPlan& group : plan.groups) {
    groups.push_back(
        fmt::format("arn:{}:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/{}", partition, group.name));
  }
  out.push_back(actions_on({"autoscaling:DeleteAutoScalingGroup"}, std::move(groups), "RubatoTeardown"));
  out.push_back(actions_on({"autoscaling:DescribeAutoScalingGroups"}, "*", "RubatoSeeGroups"));
  return out;
}

}  // namespace

bool is_job_name(std::string_view name) {
  return !name.empty() && name.size() <= kJobNameMax && is_alphanumeric(name.front()) &&
         std::ranges::all_of(name, [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

std::string group_name(const std::string& job, HostRole role) { return fmt::format("{}_{}", job, to_string(role)); }

std::string security_group_name(const std::string& job) { return "rubato-job-" + job; }

std::string role_name(const std::string& job, const std::string& region) {
  std::string name = fmt::format("rubato-job-{}-{}", job, region);
  if (name.size() <= kRoleNameMax) return name;
  const std::string digest = sha256_hex(name).substr(0, kDigestDigits);
  return name.substr(0, kRoleNameMax - digest.size() - 1) + "-" + digest;
}

std::string JobPlan::place() const { return fmt::format("s3://{}/{}", bucket, prefix); }

JobPlan make_plan(const JobRequest& request, const Specs& specs) {
  if (!is_job_name(request.name)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be the name of a job", request.name), "",
                std::string(kJobNameRule));
  }
  const int least = request.min_size > 0 ? request.min_size : request.size;
  const int most = request.max_size > 0 ? request.max_size : request.size;
  check_sizes(request, least, most);
  JobPlan plan;
  plan.name = request.name;
  plan.keep = request.keep;
  plan.bucket = specs.worker.s3_bucket;
  plan.prefix = below(specs.worker.s3_prefix, request.name);
  plan.binary_key = below(specs.worker.s3_prefix, fmt::format("bin/{}/rubato", request.binary_sha256));
  if (!request.script_sha256.empty()) plan.script_key = plan.prefix + "/" + uploaded_name(request.script);
  const NodeOrder order = order_of(request, specs, plan, least, most);
  if (request.rdzv_group) {
    GroupPlan rdzv;
    rdzv.role = HostRole::kRdzv;
    rdzv.size = rdzv.min_size = rdzv.max_size = 1;
    rdzv.specs = specs.rdzv;
    rdzv.user_data = make_user_data(rdzv_order(order), plan.binary_key, request.binary_sha256);
    plan.groups.push_back(std::move(rdzv));
  }
  GroupPlan worker;
  worker.size = request.size;
  worker.min_size = least;
  worker.max_size = most;
  worker.specs = specs.worker;
  worker.docker = !specs.worker.docker_image.empty();
  worker.user_data = make_user_data(order, plan.binary_key, request.binary_sha256);
  plan.groups.push_back(std::move(worker));
  std::string all = request.script_sha256;
  for (GroupPlan& group : plan.groups) {
    group.name = group_name(request.name, group.role);
    const Found nothing;
    const std::string contents = launch_config(group, nothing, TagList()).dump();
    group.template_name = fmt::format("{}-{}", group.name, sha256_hex(contents).substr(0, kDigestDigits));
    all += fmt::format("\n{} {}:{}:{} {} {}", group.name, group.min_size, group.size, group.max_size,
                       join(group.specs.subnets, ","), contents);
  }
  plan.digest = sha256_hex(all).substr(0, kDigestDigits);
  return plan;
}

TagList job_tags(const JobPlan& plan) {
  TagList out = {
      {std::string(kJobTag), plan.name}, {std::string(kPlanTag), plan.digest}, {std::string(kPlaceTag), plan.place()}};
  if (plan.keep) out.emplace_back(kKeepTag, "yes");
  return out;
}

TagList group_tags(const JobPlan& plan, const GroupPlan& group) {
  TagList out = job_tags(plan);
  out.emplace_back("Name", group.name);
  return out;
}

json launch_config(const GroupPlan& group, const Found& found, const TagList& tags) {
  const HostSpecs& specs = group.specs;
  json card = {{"DeviceIndex", 0}, {"AssociatePublicIpAddress", true}, {"DeleteOnTermination", true}};
  card["Groups"] = found.security_groups.empty() ? specs.security_groups : found.security_groups;
  json out = {{"InstanceType", specs.instance_type},
              {"UserData", rest::base64(group.user_data)},
              {"NetworkInterfaces", json::array({card})},
              // A container of the host's network is one hop away; version 1 of the service needs no token.
              {"MetadataOptions", {{"HttpTokens", "required"}, {"HttpPutResponseHopLimit", 2}}}};
  const std::string image = found.image.empty() ? specs.image_id : found.image;
  if (!image.empty()) out["ImageId"] = image;
  const std::string profile = found.profile.empty() ? specs.instance_role : found.profile;
  if (!profile.empty()) out["IamInstanceProfile"] = {{profile.starts_with("arn:") ? "Arn" : "Name", profile}};
  if (!specs.key_pair.empty()) out["KeyName"] = specs.key_pair;
  const json disk = {{"VolumeSize", specs.ebs_volume_gb}, {"VolumeType", "gp3"}, {"DeleteOnTermination", true}};
  const std::string device = found.root_device.empty() ? "/dev/xvda" : found.root_device;
  out["BlockDeviceMappings"] = json::array({{{"DeviceName", device}, {"Ebs", disk}}});
  if (!specs.max_spot_price.empty()) {
    out["InstanceMarketOptions"] = {{"MarketType", "spot"}, {"SpotOptions", {{"MaxPrice", specs.max_spot_price}}}};
  }
  if (!tags.empty()) {  // of volumes; the group tags its instances
    json list = json::array();
    for (const auto& [key, value] : tags) list.push_back({{"Key", key}, {"Value", value}});
    out["TagSpecifications"] = json::array({{{"ResourceType", "volume"}, {"Tags", list}}});
  }
  return out;
}

std::string image_parameter(const HostSpecs& specs, bool docker) {
  const bool gpu = specs.accelerator == Accelerator::kGpu;
  if (docker) {  // AWS's own for containers: docker, and with GPUs their driver and runtime
    return fmt::format("/aws/service/ecs/optimized-ami/amazon-linux-2023/{}recommended/image_id", gpu ? "gpu/" : "");
  }
  return gpu ? "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
             : "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id";
}

std::string wanted_statements(const JobPlan& plan, const std::string& partition) {
  return writing_statements(plan, partition).dump(2);
}

std::string role_policy(const JobPlan& plan, const std::string& partition) {
  Json statements = writing_statements(plan, partition);
  statements.push_back(
      actions_on({"s3:GetObject"}, fmt::format("arn:{}:s3:::{}/*", partition, plan.bucket), "RubatoReadJob"));
  return Json{{"Version", "2012-10-17"}, {"Statement", std::move(statements)}}.dump(2) + "\n";
}

}  // namespace rubato::petctl
