#include "gcp/compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/sha256.h"
#include "core/text.h"
#include "core/timestamp.h"
#include "gcp/os_login.h"
#include "rest/http_date.h"
#include "rest/json.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::CloudError;
using rest::list_at;
using rest::object_at;
using rest::flag_at;
using rest::number_at;
using rest::text_at;

constexpr size_t kPagesMax = 1000;
constexpr Duration kWaitTimeout = 150s;   // operations.wait answers within two minutes
constexpr Duration kOperationMax = 5min;  // of what is not a machine
constexpr Duration kPollMin = 200ms, kPollMax = 2s;  // of operations that are asked for again
constexpr int kFingerprintTries = 5;
constexpr size_t kRandomDigits = 32;
constexpr auto kReplayedAfter = std::chrono::seconds(90);  // more than clocks differ and calls take

std::string filter_of(const Labels& labels) {
  std::vector<std::string> all;
  for (const auto& [key, value] : labels) all.push_back(fmt::format("(labels.{} = \"{}\")", key, value));
  return join(all, " ");
}

Call get(const Client& client, std::string operation, std::string path) {
  Call call;
  call.operation = std::move(operation);
  call.path = client.compute_path() + "/" + path;
  return call;
}

Call post(const Client& client, std::string operation, std::string path, json body) {
  Call call = get(client, std::move(operation), std::move(path));
  call.method = "POST";
  call.body = std::move(body);
  return call;
}

// What changes something: an answer that is lost, and asked for again, is then the same operation.
Call change(Client& client, std::string operation, std::string path, json body) {
  Call call = post(client, std::move(operation), std::move(path), std::move(body));
  call.query.emplace_back("requestId", request_id_of(client.world().random.hex(kRandomDigits)));
  return call;
}

// Every page of a list, as documents.
Task<std::vector<json>> pages(Client& client, Call call) {
  std::vector<json> out;
  std::string token;
  call.query.emplace_back("maxResults", "500");
  for (size_t page = 0; page < kPagesMax; ++page) {
    Call now = call;
    if (!token.empty()) now.query.emplace_back("pageToken", token);
    json document = co_await client.call(std::move(now));
    token = text_at(document, "nextPageToken");
    out.push_back(std::move(document));
    if (token.empty()) co_return out;
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("{}: the list does not end after {} pages", call.operation, kPagesMax));
}

Task<std::vector<json>> items(Client& client, Call call) {
  std::vector<json> out;
  const std::vector<json> all = co_await pages(client, std::move(call));
  for (const json& page : all) {
    for (const json& one : list_at(page, "items")) out.push_back(one);
  }
  co_return out;
}

// Of an aggregated list, with the place of each: "zones/us-west1-a".
Task<std::vector<json>> aggregated(Client& client, Call call, const char* kind, std::string region) {
  std::vector<json> out;
  const std::vector<json> all = co_await pages(client, std::move(call));
  for (const json& page : all) {
    const json scopes = object_at(page, "items");
    for (const auto& [scope, held] : scopes.items()) {
      const std::string warning = text_at(object_at(held, "warning"), "code");
      if (warning == "UNREACHABLE" && scope.starts_with("zones/" + region)) {
        throw Error(ErrorCode::kUnavailable, fmt::format("{} does not answer now", scope), "", "try again later");
      }
      for (json one : list_at(held, kind)) {
        if (!one.is_object()) continue;
        if (text_at(one, "zone").empty()) one["zone"] = last_part(scope);
        out.push_back(std::move(one));
      }
    }
    for (const json& one : list_at(page, "unreachables")) {
      if (one.is_string() && one.get<std::string>().find("zones/" + region) != std::string::npos) {
        throw Error(ErrorCode::kUnavailable, fmt::format("{} does not answer now", one.get<std::string>()), "",
                    "try again later");
      }
    }
  }
  co_return out;
}

Instance instance_of(const json& document) {
  Instance out;
  out.id = text_at(document, "id");
  out.name = text_at(document, "name");
  out.zone = last_part(text_at(document, "zone"));
  out.status = text_at(document, "status");
  out.label_fingerprint = text_at(document, "labelFingerprint");
  out.machine_type = last_part(text_at(document, "machineType"));
  const json labels = object_at(document, "labels");
  for (const auto& [key, value] : labels.items()) {
    if (value.is_string()) out.labels[key] = value.get<std::string>();
  }
  const json scheduling = object_at(document, "scheduling");
  out.spot = text_at(scheduling, "provisioningModel") == "SPOT" || flag_at(scheduling, "preemptible");
  const json metadata = object_at(document, "metadata");
  for (const json& one : list_at(metadata, "items")) {
    if (text_at(one, "key") == "enable-oslogin") out.uses_login = is_on(text_at(one, "value"));
  }
  const json cards = list_at(document, "networkInterfaces");
  if (cards.empty()) return out;
  out.private_address = text_at(cards.front(), "networkIP");
  out.subnetwork = without_host(text_at(cards.front(), "subnetwork"));
  const json ways = list_at(cards.front(), "accessConfigs");
  if (!ways.empty()) out.public_address = text_at(ways.front(), "natIP");
  return out;
}

// A server that is not Google's may do at once what it is asked for, and answer with the thing itself, or with nothing.
bool is_operation(const json& document) {
  return document.contains("operationType") || text_at(document, "kind").ends_with("#operation") ||
         text_at(document, "name").starts_with("operation-");
}

// `scope`: where it is, if it does not say so.
Operation operation_of(const Client& client, const json& document, const std::string& call,
                       const std::string& scope = "global") {
  Operation out;
  out.name = text_at(document, "name");
  const std::string zone = last_part(text_at(document, "zone")), region = last_part(text_at(document, "region"));
  out.scope = !zone.empty() ? "zones/" + zone : !region.empty() ? "regions/" + region : scope;
  out.target_id = text_at(document, "targetId");
  const std::string status = text_at(document, "status");
  out.is_done = status == "DONE" || status.empty() || !is_operation(document);
  if (out.is_done && !object_at(document, "error").empty()) {
    const CallName name{"compute " + call, client.project(), "operation " + out.name};
    out.error = operation_error(name, document);
  }
  return out;
}

Task<Operation> change_instance(Client& client, std::string verb, std::string zone, std::string name) {
  const bool ends = verb == "delete";
  Call call = change(client, "instances." + verb, fmt::format("zones/{}/instances/{}", zone, name), json());
  if (ends) call.method = "DELETE";
  if (!ends) call.path += "/" + verb;
  const json document = co_await client.call(std::move(call));
  co_return operation_of(client, document, "instances." + verb, "zones/" + zone);
}

// nullopt: there is no such thing.
Task<std::optional<json>> find(Client& client, Call call) {
  try {
    co_return co_await client.call(std::move(call));
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
  }
  co_return std::nullopt;
}

// Where a server has no list of the whole project.
Task<std::vector<json>> list_by_zones(Client& client, Labels labels, std::string region) {
  const std::vector<std::string> zones = co_await list_zones(client, std::move(region));
  std::vector<json> out;
  for (const std::string& zone : zones) {
    Call call = get(client, "instances.list", fmt::format("zones/{}/instances", zone));
    call.query.emplace_back("filter", filter_of(labels));
    std::vector<json> found = co_await items(client, std::move(call));
    for (json& one : found) {
      if (!one.is_object()) continue;
      if (text_at(one, "zone").empty()) one["zone"] = zone;
      out.push_back(std::move(one));
    }
  }
  co_return out;
}

}  // namespace

std::string without_host(std::string_view link) {
  const size_t at = link.find("/projects/");
  return link.find("://") == std::string_view::npos || at == std::string_view::npos ? std::string(link)
                                                                                    : std::string(link.substr(at + 1));
}

std::string last_part(std::string_view link) {
  const size_t slash = link.rfind('/');
  return std::string(slash == std::string_view::npos ? link : link.substr(slash + 1));
}

const std::string& Instance::label(std::string_view key) const {
  static const std::string kNone;
  const auto found = labels.find(std::string(key));
  return found == labels.end() ? kNone : found->second;
}

std::string request_id_of(std::string_view text) {
  std::string hex = sha256_hex(text).substr(0, 32);
  hex[12] = '4';  // RFC 9562: version and variant of a random one, which every server takes
  hex[16] = "89ab"[static_cast<size_t>(hex[16]) % 4];
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4),
                     hex.substr(20));
}

Task<std::vector<Instance>> list_instances(Client& client, Labels labels, std::string region) {
  Call call = get(client, "instances.aggregatedList", "aggregated/instances");
  call.query.emplace_back("filter", filter_of(labels));
  bool is_unknown = false;
  std::vector<json> found;
  try {
    found = co_await aggregated(client, std::move(call), "instances", region);
  } catch (const CloudError& error) {
    is_unknown = is_unknown_call(error);
    if (!is_unknown) throw;
  }
  if (is_unknown) found = co_await list_by_zones(client, std::move(labels), std::move(region));
  std::vector<Instance> out;
  for (const json& one : found) out.push_back(instance_of(one));
  co_return out;
}

Task<std::optional<Instance>> get_instance(Client& client, std::string zone, std::string name) {
  Call call = get(client, "instances.get", fmt::format("zones/{}/instances/{}", zone, name));
  const std::optional<json> found = co_await find(client, std::move(call));
  if (!found) co_return std::nullopt;
  co_return instance_of(*found);
}

Task<Operation> insert_instance(Client& client, std::string zone, json body, std::string request_id) {
  Call call = post(client, "instances.insert", fmt::format("zones/{}/instances", zone), std::move(body));
  if (const std::string from = text_at(call.body, "sourceInstanceTemplate"); !from.empty()) {
    call.query.emplace_back("sourceInstanceTemplate", from);
    call.body.erase("sourceInstanceTemplate");
  }
  if (!request_id.empty()) call.query.emplace_back("requestId", std::move(request_id));
  std::map<std::string, std::string> headers{{"content-type", "application/json"}};
  std::string text = call.body.dump();
  const HttpResponse response = co_await client.send(std::move(call), std::move(headers), std::move(text));
  const json document = rest::read_json(response.body, "compute instances.insert");
  Operation operation = operation_of(client, document, "instances.insert", "zones/" + zone);
  // Both times are Google's: our clock may be wrong.
  const auto begun = parse_time(text_at(document, "insertTime"));
  const auto now = rest::parse_http_date(rest::header_of(response, "date"));
  operation.is_replayed = begun && now.value_or(client.world().clock.wall()) - *begun > kReplayedAfter;
  co_return operation;
}

Task<Operation> delete_instance(Client& client, std::string zone, std::string name) {
  return change_instance(client, "delete", std::move(zone), std::move(name));
}
Task<Operation> stop_instance(Client& client, std::string zone, std::string name) {
  return change_instance(client, "stop", std::move(zone), std::move(name));
}
Task<Operation> start_instance(Client& client, std::string zone, std::string name) {
  return change_instance(client, "start", std::move(zone), std::move(name));
}

Task<Operation> change_labels(Client& client, Instance instance, Labels changes) {
  const std::string path = fmt::format("zones/{}/instances/{}", instance.zone, instance.name);
  for (int tries = 1;; ++tries) {
    Labels all = instance.labels;
    for (const auto& [key, value] : changes) all[key] = value;
    const json body = {{"labels", all}, {"labelFingerprint", instance.label_fingerprint}};
    bool changed = false;
    try {
      Call call = change(client, "instances.setLabels", path + "/setLabels", body);
      const json document = co_await client.call(std::move(call));
      co_return operation_of(client, document, "instances.setLabels", "zones/" + instance.zone);
    } catch (const CloudError& error) {
      changed = error.status == 412 && tries < kFingerprintTries;
      if (!changed) throw;
    }
    std::optional<Instance> now = co_await get_instance(client, instance.zone, instance.name);
    if (!now) throw Error(ErrorCode::kNotFound, fmt::format("machine {} is gone", instance.name));
    instance = std::move(*now);
  }
}

Task<Operation> wait_operation(Client& client, Operation operation, Instant deadline) {
  bool can_wait = true;
  Duration pause = kPollMin;
  while (!operation.is_done) {
    const Instant now = client.world().clock.now();
    if (now >= deadline) {
      throw Error(ErrorCode::kUnavailable, "Google has not finished an operation in time", operation.name,
                  "gcloud compute operations list shows it; try again");
    }
    const std::string path = fmt::format("{}/operations/{}", operation.scope, operation.name);
    json document;
    try {
      Call call = can_wait ? post(client, "operations.wait", path + "/wait", json())
                           : get(client, "operations.get", path);
      if (can_wait) call.timeout = kWaitTimeout;
      document = co_await client.call(std::move(call));
    } catch (const CloudError& error) {
      // Servers that are not Google's know the older way only, or forget what is done.
      if (!is_unknown_call(error)) throw;
      if (!can_wait) operation.is_done = true;
      can_wait = false;
      continue;
    }
    const bool was_replayed = operation.is_replayed;
    const std::string scope = operation.scope;
    operation = operation_of(client, document, text_at(document, "operationType"), scope);
    operation.is_replayed = was_replayed;
    if (operation.is_done) break;
    co_await Sleep(client.world().clock.loop(), client.world().clock.now() + pause);
    pause = std::min(pause * 2, kPollMax);
  }
  co_return operation;
}

Task<void> finish_operation(Client& client, Operation operation, Instant deadline) {
  const Operation done = co_await wait_operation(client, std::move(operation), deadline);
  if (done.error) throw *done.error;
}

// ---- what surrounds them ----

Task<std::vector<std::string>> list_zones(Client& client, std::string region) {
  Call call = get(client, "zones.list", "zones");
  const std::vector<json> found = co_await items(client, std::move(call));
  std::vector<std::string> out;
  for (const json& one : found) {
    const std::string name = text_at(one, "name"), of = last_part(text_at(one, "region"));
    const bool is_there = of.empty() ? name.starts_with(region + "-") : of == region;
    const std::string status = text_at(one, "status");
    if (is_there && (status.empty() || status == "UP")) out.push_back(name);
  }
  std::ranges::sort(out);
  co_return out;
}

Task<std::vector<Subnetwork>> list_subnetworks(Client& client, std::string region) {
  Call call = get(client, "subnetworks.list", fmt::format("regions/{}/subnetworks", region));
  const std::vector<json> found = co_await items(client, std::move(call));
  std::vector<Subnetwork> out;
  for (const json& one : found) {
    if (const std::string purpose = text_at(one, "purpose"); !purpose.empty() && purpose != "PRIVATE") continue;
    out.push_back(
        {text_at(one, "name"), without_host(text_at(one, "selfLink")), without_host(text_at(one, "network"))});
  }
  co_return out;
}

Task<bool> has_machine_type(Client& client, std::string zone, std::string name) {
  Call call = get(client, "machineTypes.get", fmt::format("zones/{}/machineTypes/{}", zone, name));
  const std::optional<json> found = co_await find(client, std::move(call));
  co_return found.has_value();
}

Task<bool> knows_machine_types(Client& client, std::string zone) {
  Call call = get(client, "machineTypes.list", fmt::format("zones/{}/machineTypes", zone));
  call.query.emplace_back("maxResults", "1");
  const std::optional<json> found = co_await find(client, std::move(call));
  co_return found && !list_at(*found, "items").empty();
}

Task<bool> has_image(Client& client, std::string path) {
  Call call = get(client, "images.get", "");
  call.path = "/compute/v1/" + path;
  const std::optional<json> found = co_await find(client, std::move(call));
  co_return found.has_value();
}

Task<std::string> newest_image(Client& client, std::string project, std::string family_prefix) {
  Call call = get(client, "images.list", "");
  call.path = fmt::format("/compute/v1/projects/{}/global/images", project);
  const std::vector<json> found = co_await items(client, std::move(call));
  std::string newest, made;
  for (const json& one : found) {
    const json deprecated = object_at(one, "deprecated");
    if (!text_at(one, "family").starts_with(family_prefix) || !text_at(deprecated, "state").empty()) continue;
    const std::string at = text_at(one, "creationTimestamp");
    if (at < made) continue;
    made = at;
    newest = fmt::format("projects/{}/global/images/{}", project, text_at(one, "name"));
  }
  co_return newest;
}

Task<std::optional<Firewall>> get_firewall(Client& client, std::string name) {
  Call call = get(client, "firewalls.get", "global/firewalls/" + name);
  const std::optional<json> found = co_await find(client, std::move(call));
  if (!found) co_return std::nullopt;
  Firewall out;
  out.name = text_at(*found, "name");
  out.description = text_at(*found, "description");
  out.network = without_host(text_at(*found, "network"));
  for (const json& one : list_at(*found, "sourceRanges")) {
    if (one.is_string()) out.source_ranges.push_back(one.get<std::string>());
  }
  co_return out;
}

Task<void> insert_firewall(Client& client, json body) {
  Call call = change(client, "firewalls.insert", "global/firewalls", std::move(body));
  const json document = co_await client.call(std::move(call));
  Operation operation = operation_of(client, document, "firewalls.insert");
  co_await finish_operation(client, std::move(operation), client.world().clock.now() + kOperationMax);
}

Task<void> patch_firewall(Client& client, std::string name, json body) {
  Call call = change(client, "firewalls.patch", "global/firewalls/" + name, std::move(body));
  call.method = "PATCH";
  const json document = co_await client.call(std::move(call));
  Operation operation = operation_of(client, document, "firewalls.patch");
  co_await finish_operation(client, std::move(operation), client.world().clock.now() + kOperationMax);
}

Task<bool> delete_firewall(Client& client, std::string name) {
  Call call = change(client, "firewalls.delete", "global/firewalls/" + name, json());
  call.method = "DELETE";
  const std::optional<json> document = co_await find(client, std::move(call));
  if (!document) co_return false;
  Operation operation = operation_of(client, *document, "firewalls.delete");
  co_await finish_operation(client, std::move(operation), client.world().clock.now() + kOperationMax);
  co_return true;
}

Task<std::vector<Disk>> list_disks(Client& client, Labels labels) {
  Call call = get(client, "disks.aggregatedList", "aggregated/disks");
  call.query.emplace_back("filter", filter_of(labels));
  const std::vector<json> found = co_await aggregated(client, std::move(call), "disks", "");
  std::vector<Disk> out;
  for (const json& one : found) {
    Disk disk{text_at(one, "name"), last_part(text_at(one, "zone")), one.contains("users"),
              last_part(text_at(one, "type")), 0};
    const std::string size = text_at(one, "sizeGb");  // int64 as text
    std::from_chars(size.data(), size.data() + size.size(), disk.gigabytes);
    out.push_back(std::move(disk));
  }
  co_return out;
}

Task<std::vector<Quota>> list_quotas(Client& client, std::string region) {
  Call call = get(client, "regions.get", "regions/" + region);
  const json document = co_await client.call(std::move(call));
  std::vector<Quota> out;
  for (const json& one : list_at(document, "quotas")) {
    out.push_back({text_at(one, "metric"), number_at(one, "limit"), number_at(one, "usage")});
  }
  co_return out;
}

}  // namespace rubato::gcp
