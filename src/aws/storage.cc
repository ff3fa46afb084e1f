#include "aws/storage.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato::aws {
namespace {

using nlohmann::json;

constexpr std::string_view kEfsRoot = "/2015-02-01";
constexpr size_t kEfsPagesMax = 1000;

std::string field(const json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

Task<json> efs(Client& client, std::string operation, std::string method, std::string path, rest::Query query,
               json body) {
  RestCall call;
  call.operation = operation;
  call.method = std::move(method);
  call.path = std::string(kEfsRoot) + path;
  call.query = std::move(query);
  if (!body.is_null()) {
    call.body = body.dump();
    call.headers["content-type"] = "application/json";
  }
  const HttpResponse response = co_await client.rest(kEfs, std::move(call));
  co_return read_json(response.body, "efs " + operation);
}

Task<std::vector<json>> efs_pages(Client& client, std::string operation, std::string path, rest::Query query,
                                  std::string list) {
  std::vector<json> out;
  std::string marker;
  for (size_t page = 0; page < kEfsPagesMax; ++page) {
    rest::Query now = query;
    if (!marker.empty()) now.emplace_back("Marker", marker);
    json document = co_await efs(client, operation, "GET", path, std::move(now), json());
    for (json& one : document[list]) out.push_back(std::move(one));
    marker = field(document, "NextMarker");
    if (marker.empty()) break;
  }
  co_return out;
}

FileSystem file_system_from(const json& document) {
  FileSystem out;
  out.id = field(document, "FileSystemId");
  out.name = field(document, "Name");
  out.state = field(document, "LifeCycleState");
  if (const auto size = document.find("SizeInBytes"); size != document.end() && size->is_object()) {
    if (const auto value = size->find("Value"); value != size->end() && value->is_number()) {
      out.bytes = value->get<int64_t>();
    }
  }
  if (const auto tags = document.find("Tags"); tags != document.end() && tags->is_array()) {
    for (const json& one : *tags) out.tags.emplace_back(field(one, "Key"), field(one, "Value"));
  }
  return out;
}

MountTarget mount_target_from(const json& document) {
  MountTarget out;
  out.id = field(document, "MountTargetId");
  out.subnet = field(document, "SubnetId");
  out.address = field(document, "IpAddress");
  out.state = field(document, "LifeCycleState");
  out.zone = field(document, "AvailabilityZoneName");
  return out;
}

}  // namespace

Task<std::optional<std::string>> get_parameter(Client& client, std::string name) {
  const json body = {{"Name", name}};
  try {
    const json document = co_await client.json(kSsm, "GetParameter", body.dump());
    const auto parameter = document.find("Parameter");
    if (parameter != document.end()) co_return field(*parameter, "Value");
  } catch (const rest::CloudError& error) {
    if (error.reason != "ParameterNotFound") throw;
  }
  co_return std::nullopt;
}

Task<std::vector<FileSystem>> describe_file_systems(Client& client) {
  const auto items = co_await efs_pages(client, "DescribeFileSystems", "/file-systems", rest::Query(), "FileSystems");
  std::vector<FileSystem> out;
  for (const json& one : items) out.push_back(file_system_from(one));
  co_return out;
}

Task<FileSystem> create_file_system(Client& client, std::string token, Tags tags) {
  json body = {{"CreationToken", token}, {"Encrypted", true}, {"Tags", json::array()}};
  for (const auto& [key, value] : tags) body["Tags"].push_back({{"Key", key}, {"Value", value}});
  bool exists = false;
  json document;
  try {
    document = co_await efs(client, "CreateFileSystem", "POST", "/file-systems", rest::Query(), std::move(body));
  } catch (const rest::CloudError& error) {
    if (error.reason != "FileSystemAlreadyExists") throw;
    exists = true;
  }
  if (!exists) co_return file_system_from(document);
  rest::Query query;
  query.emplace_back("CreationToken", token);
  const auto found =
      co_await efs_pages(client, "DescribeFileSystems", "/file-systems", std::move(query), "FileSystems");
  if (found.empty()) throw Error(ErrorCode::kConflict, "the file system of this token is being deleted", token);
  co_return file_system_from(found.front());
}

Task<void> delete_file_system(Client& client, std::string id) {
  co_await efs(client, "DeleteFileSystem", "DELETE", "/file-systems/" + id, rest::Query(), json());
}

Task<std::vector<MountTarget>> describe_mount_targets(Client& client, std::string file_system) {
  rest::Query query;
  query.emplace_back("FileSystemId", file_system);
  const auto items =
      co_await efs_pages(client, "DescribeMountTargets", "/mount-targets", std::move(query), "MountTargets");
  std::vector<MountTarget> out;
  for (const json& one : items) out.push_back(mount_target_from(one));
  co_return out;
}

Task<MountTarget> create_mount_target(Client& client, std::string file_system, std::string subnet,
                                      std::vector<std::string> groups) {
  json body = {{"FileSystemId", file_system}, {"SubnetId", subnet}};
  if (!groups.empty()) body["SecurityGroups"] = groups;
  const json document =
      co_await efs(client, "CreateMountTarget", "POST", "/mount-targets", rest::Query(), std::move(body));
  co_return mount_target_from(document);
}

Task<std::vector<std::string>> groups_of_mount_target(Client& client, std::string id) {
  const json document = co_await efs(client, "DescribeMountTargetSecurityGroups", "GET",
                                     fmt::format("/mount-targets/{}/security-groups", id), rest::Query(), json());
  std::vector<std::string> out;
  for (const json& one : document.value("SecurityGroups", json::array())) {
    if (one.is_string()) out.push_back(one.get<std::string>());
  }
  co_return out;
}

Task<void> delete_mount_target(Client& client, std::string id) {
  co_await efs(client, "DeleteMountTarget", "DELETE", "/mount-targets/" + id, rest::Query(), json());
}

}  // namespace rubato::aws
