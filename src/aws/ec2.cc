#include "aws/ec2.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "rest/base64.h"
#include "rest/cloud_error.h"

namespace rubato::aws {
namespace {

constexpr size_t kPagesMax = 1000;

template <class Number>
Number number_at(const rest::XmlNode& node, std::string_view path) {
  Number out{};
  const std::string_view text = node.text_at(path);
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

Instance instance_from(const rest::XmlNode& node) {
  Instance out;
  const auto text = [&](std::string_view path) { return std::string(node.text_at(path)); };
  const std::string card = "networkInterfaceSet/item/";  // the first one
  out.id = text("instanceId");
  out.type = text("instanceType");
  out.zone = text("placement/availabilityZone");
  out.image = text("imageId");
  out.state = text("instanceState/name");
  out.private_address = text("privateIpAddress");
  out.public_address = text("ipAddress");
  out.public_name = text("dnsName");
  out.subnet = text("subnetId");
  out.vpc = text("vpcId");
  out.key_name = text("keyName");
  out.launched = text("launchTime");
  out.state_reason = text("stateReason/code");
  out.client_token = text("clientToken");
  out.launch_index = number_at<int>(node, "amiLaunchIndex");
  out.spot = text("instanceLifecycle") == "spot";
  out.tags = tags_of(node);
  if (out.private_address.empty()) out.private_address = text(card + "privateIpAddress");
  if (out.public_address.empty()) out.public_address = text(card + "association/publicIp");
  return out;
}

std::vector<Instance> instances_in(const rest::XmlNode& reservation) {
  std::vector<Instance> out;
  for (const rest::XmlNode* one : reservation.list("instancesSet", "item")) out.push_back(instance_from(*one));
  return out;
}

Task<std::vector<StateChange>> change_states(Client& client, std::string action, std::vector<std::string> ids) {
  Params params;
  add_list(params, "InstanceId", ids);
  const rest::XmlNode root = co_await client.query(kEc2, std::move(action), std::move(params));
  std::vector<StateChange> out;
  for (const rest::XmlNode* one : root.list("instancesSet", "item")) {
    StateChange change;
    change.id = one->text_at("instanceId");
    change.before = one->text_at("previousState/name");
    change.now = one->text_at("currentState/name");
    out.push_back(std::move(change));
  }
  co_return out;
}

InstanceType type_from(const rest::XmlNode& node) {
  InstanceType out;
  out.name = node.text_at("instanceType");
  out.vcpus = number_at<int>(node, "vCpuInfo/defaultVCpus");
  out.memory_mib = number_at<int64_t>(node, "memoryInfo/sizeInMiB");
  for (const rest::XmlNode* gpu : node.list("gpuInfo/gpus", "item")) {
    out.gpus += number_at<int>(*gpu, "count");
    out.gpu_name = gpu->text_at("name");
    out.gpu_maker = gpu->text_at("manufacturer");
    out.gpu_memory_mib = number_at<int64_t>(*gpu, "memoryInfo/sizeInMiB");
  }
  for (const rest::XmlNode* one : node.list("processorInfo/supportedArchitectures", "item")) {
    out.architectures.push_back(one->text);
  }
  for (const rest::XmlNode* one : node.list("supportedUsageClasses", "item")) out.spot |= one->text == "spot";
  return out;
}

}  // namespace

std::string_view Instance::tag(std::string_view key) const {
  for (const auto& [name, value] : tags) {
    if (name == key) return value;
  }
  return {};
}

Tags tags_of(const rest::XmlNode& node) {
  Tags out;
  for (const rest::XmlNode* tag : node.list("tagSet", "item")) {
    out.emplace_back(tag->text_at("key"), tag->text_at("value"));
  }
  return out;
}

Task<std::vector<rest::XmlNode>> describe_pages(Client& client, std::string action, Params params, std::string list) {
  std::vector<rest::XmlNode> out;
  std::string token;
  for (size_t page = 0; page < kPagesMax; ++page) {
    Params now = params;
    add(now, "NextToken", token);
    rest::XmlNode root = co_await client.query(kEc2, action, std::move(now));
    for (rest::XmlNode& child : root.children) {
      if (child.name != list) continue;
      for (rest::XmlNode& item : child.children) out.push_back(std::move(item));
    }
    const std::string next(root.text_at("nextToken"));
    if (next.empty() || next == token) co_return out;  // a server that knows no pages may send our token back
    token = next;
  }
  throw Error(ErrorCode::kUnavailable, fmt::format("ec2 {}: the list does not end after {} pages", action, kPagesMax));
}

Task<std::vector<Instance>> run_instances(Client& client, Launch launch) {
  Params params = run_instances_params(*launch.config);
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(params, [&](const auto& one) { return one.first == name; });
  };
  for (const char* name : {"MinCount", "MaxCount"}) {
    if (!has(name)) params.emplace_back(name, std::to_string(launch.count));
  }
  if (!launch.client_token.empty()) params.emplace_back("ClientToken", launch.client_token);
  int specifications = 0;  // the user's own come first
  while (has(fmt::format("TagSpecification.{}.ResourceType", specifications + 1))) ++specifications;
  add_tag_specification(params, specifications + 1, "instance", launch.tags);
  add_tag_specification(params, specifications + 2, "volume", launch.tags);
  const rest::XmlNode root = co_await client.query(kEc2, "RunInstances", std::move(params));
  co_return instances_in(root);
}

Task<std::vector<rest::XmlNode>> describe_if_any(Client& client, std::string action, Params params, std::string list) {
  try {
    co_return co_await describe_pages(client, std::move(action), std::move(params), std::move(list));
  } catch (const rest::CloudError& error) {
    const bool absent = error.code == ErrorCode::kNotFound || error.reason.ends_with(".Unknown");
    if (!absent) throw;
  }
  co_return std::vector<rest::XmlNode>();
}

Task<std::vector<Instance>> describe_instances(Client& client, std::vector<std::string> ids,
                                               std::vector<Filter> filters) {
  Params params;
  add_list(params, "InstanceId", ids);
  add_filters(params, filters);
  if (ids.empty()) params.emplace_back("MaxResults", "1000");  // AWS takes no page size together with ids
  const auto reservations = co_await describe_pages(client, "DescribeInstances", std::move(params), "reservationSet");
  std::vector<Instance> out;
  for (const rest::XmlNode& reservation : reservations) {
    for (Instance& one : instances_in(reservation)) out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::vector<StateChange>> terminate_instances(Client& client, std::vector<std::string> ids) {
  return change_states(client, "TerminateInstances", std::move(ids));
}
Task<std::vector<StateChange>> stop_instances(Client& client, std::vector<std::string> ids) {
  return change_states(client, "StopInstances", std::move(ids));
}
Task<std::vector<StateChange>> start_instances(Client& client, std::vector<std::string> ids) {
  return change_states(client, "StartInstances", std::move(ids));
}

Task<void> create_tags(Client& client, std::vector<std::string> ids, Tags tags) {
  Params params;
  add_list(params, "ResourceId", ids);
  for (size_t i = 0; i < tags.size(); ++i) {
    params.emplace_back(fmt::format("Tag.{}.Key", i + 1), tags[i].first);
    params.emplace_back(fmt::format("Tag.{}.Value", i + 1), tags[i].second);
  }
  co_await client.query(kEc2, "CreateTags", std::move(params));
}

Task<void> delete_tags(Client& client, std::vector<std::string> ids, std::vector<std::string> keys) {
  Params params;
  add_list(params, "ResourceId", ids);
  for (size_t i = 0; i < keys.size(); ++i) params.emplace_back(fmt::format("Tag.{}.Key", i + 1), keys[i]);
  co_await client.query(kEc2, "DeleteTags", std::move(params));
}

Task<std::vector<Image>> describe_images(Client& client, std::vector<std::string> ids, std::vector<std::string> owners,
                                         std::vector<Filter> filters) {
  Params params;
  add_list(params, "ImageId", ids);
  add_list(params, "Owner", owners);
  add_filters(params, filters);
  const auto items = co_await describe_pages(client, "DescribeImages", std::move(params), "imagesSet");
  std::vector<Image> out;
  for (const rest::XmlNode& node : items) {
    Image image;
    image.id = node.text_at("imageId");
    image.name = node.text_at("name");
    image.created = node.text_at("creationDate");
    image.state = node.text_at("imageState");
    image.root_device = node.text_at("rootDeviceName");
    image.architecture = node.text_at("architecture");
    image.owner = node.text_at("imageOwnerId");
    out.push_back(std::move(image));
  }
  std::ranges::stable_sort(out, std::greater<>(), &Image::created);
  co_return out;
}

Task<std::optional<Image>> find_stand_in(Client& client, std::string name_pattern) {
  for (const std::string& pattern : {name_pattern, std::string("*")}) {
    std::vector<std::string> any, owners;
    std::vector<Filter> filters;
    filters.push_back({"name", {pattern}});
    auto found = co_await describe_images(client, std::move(any), std::move(owners), std::move(filters));
    std::erase_if(found, [](const Image& one) { return one.name.find("Windows") != std::string::npos; });
    if (!found.empty()) co_return std::move(found.front());
  }
  co_return std::nullopt;
}

Task<std::string> create_image(Client& client, std::string instance, std::string name, Tags tags) {
  Params params;
  params.emplace_back("InstanceId", instance);
  params.emplace_back("Name", name);
  add_tag_specification(params, 1, "image", tags);
  const rest::XmlNode root = co_await client.query(kEc2, "CreateImage", std::move(params));
  co_return std::string(root.text_at("imageId"));
}

Task<std::vector<InstanceType>> describe_instance_types(Client& client, std::vector<std::string> names) {
  Params params;
  add_list(params, "InstanceType", names);
  if (names.empty()) params.emplace_back("MaxResults", "100");
  const auto items = co_await describe_pages(client, "DescribeInstanceTypes", std::move(params), "instanceTypeSet");
  std::vector<InstanceType> out;
  for (const rest::XmlNode& node : items) out.push_back(type_from(node));
  co_return out;
}

Task<std::vector<SpotPrice>> describe_spot_prices(Client& client, std::vector<std::string> types, std::string start) {
  Params params;
  add_list(params, "InstanceType", types);
  params.emplace_back("ProductDescription.1", "Linux/UNIX");
  add(params, "StartTime", start);
  const auto items =
      co_await describe_pages(client, "DescribeSpotPriceHistory", std::move(params), "spotPriceHistorySet");
  std::vector<SpotPrice> out;
  for (const rest::XmlNode& node : items) {
    SpotPrice one;
    one.type = node.text_at("instanceType");
    one.zone = node.text_at("availabilityZone");
    one.time = node.text_at("timestamp");
    one.price = number_at<double>(node, "spotPrice");
    out.push_back(std::move(one));
  }
  std::ranges::stable_sort(out, std::greater<>(), &SpotPrice::time);
  co_return out;
}

Task<std::vector<LaunchTemplate>> describe_launch_templates(Client& client, std::vector<std::string> names) {
  Params params;
  add_list(params, "LaunchTemplateName", names);
  const auto items = co_await describe_pages(client, "DescribeLaunchTemplates", std::move(params), "launchTemplates");
  std::vector<LaunchTemplate> out;
  for (const rest::XmlNode& node : items) {
    LaunchTemplate one;
    one.id = node.text_at("launchTemplateId");
    one.name = node.text_at("launchTemplateName");
    one.latest = number_at<int64_t>(node, "latestVersionNumber");
    one.default_version = number_at<int64_t>(node, "defaultVersionNumber");
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::string> create_launch_template(Client& client, std::string name, const nlohmann::json& config,
                                         std::string client_token, Tags tags) {
  Params params;
  params.emplace_back("LaunchTemplateName", name);
  add(params, "ClientToken", client_token);
  for (auto& [key, value] : run_instances_params(config)) {
    params.emplace_back("LaunchTemplateData." + key, std::move(value));
  }
  add_tag_specification(params, 1, "launch-template", tags);
  const rest::XmlNode root = co_await client.query(kEc2, "CreateLaunchTemplate", std::move(params));
  co_return std::string(root.text_at("launchTemplate/launchTemplateId"));
}

// The answer's names of what a caller has to know to be settled: botocore's ResponseLaunchTemplateData.
constexpr std::pair<std::string_view, std::string_view> kTemplateKeys[] = {
    {"iamInstanceProfile", "IamInstanceProfile"},
    {"imageId", "ImageId"},
    {"instanceMarketOptions", "InstanceMarketOptions"},
    {"instanceType", "InstanceType"},
    {"keyName", "KeyName"},
    {"networkInterfaceSet", "NetworkInterfaces"},
    {"placement", "Placement"},
    {"securityGroupIdSet", "SecurityGroupIds"},
    {"securityGroupSet", "SecurityGroups"},
    {"userData", "UserData"}};

Task<std::optional<TemplateContents>> describe_template(Client& client, std::string id, std::string name,
                                                        std::string version) {
  Params params;
  add(params, "LaunchTemplateId", id);
  add(params, "LaunchTemplateName", name);
  add(params, "LaunchTemplateVersion.1", version);
  std::vector<rest::XmlNode> found;
  try {
    found = co_await describe_pages(client, "DescribeLaunchTemplateVersions", std::move(params),
                                    "launchTemplateVersionSet");
  } catch (const rest::CloudError& error) {
    if (!error.reason.starts_with("InvalidLaunchTemplate")) throw;
  }
  if (found.empty()) co_return std::nullopt;
  TemplateContents out;
  for (const auto& [wire, key] : kTemplateKeys) {
    const rest::XmlNode* node = found.front().at(fmt::format("launchTemplateData/{}", wire));
    if (node && (!node->text.empty() || !node->children.empty())) out.keys.emplace_back(key);
  }
  for (const char* key : {"arn", "name"}) {
    if (out.profile.empty()) {
      out.profile = found.front().text_at(fmt::format("launchTemplateData/iamInstanceProfile/{}", key));
    }
  }
  out.user_data = rest::unbase64(found.front().text_at("launchTemplateData/userData")).value_or("");
  co_return out;
}

Task<void> delete_launch_template(Client& client, std::string id) {
  Params params;
  params.emplace_back("LaunchTemplateId", id);
  co_await client.query(kEc2, "DeleteLaunchTemplate", std::move(params));
}

Task<std::string> console_output(Client& client, std::string instance) {
  Params params;
  params.emplace_back("InstanceId", instance);
  const rest::XmlNode root = co_await client.query(kEc2, "GetConsoleOutput", std::move(params));
  std::string digits;
  for (const char c : root.text_at("output")) {
    if (c != '\n' && c != '\r' && c != ' ') digits += c;
  }
  co_return rest::unbase64(digits).value_or("");
}

}  // namespace rubato::aws
