#include "elasticjob/submit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "core/yaml.h"
#include "kubernetes/file_mode.h"
#include "model/yaml_value.h"

namespace rubato::elasticjob {

using kubernetes::bool_in;
using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::Resource;
using kubernetes::text_in;
using nlohmann::json;

namespace {

void add_object(const Yaml& node, std::vector<json>& out) {
  if (!node.is_mapping()) node.fail("a document of a manifest is a mapping", "begin with apiVersion and kind");
  json document = json::parse(value_of(node).dump());
  for (const char* key : {"apiVersion", "kind"}) {
    if (text_in(document, key).empty()) node.fail(fmt::format("the document has no {}", key), "see kubectl explain");
  }
  const json& metadata = object_in(document, "metadata");
  if (text_in(metadata, "name").empty() && text_in(metadata, "generateName").empty())
    node.fail("the document has no metadata.name", "write metadata: {name: NAME}");
  kubernetes::read_file_modes(document);
  out.push_back(std::move(document));
}

void add_document(const std::string& text, const std::string& file, std::vector<json>& out) {
  const Yaml root = Yaml::parse(text, file);
  if (root.is_null()) return;
  const auto kind = root.is_mapping() ? root.find("kind") : std::nullopt;
  if (!kind || !kind->is_scalar() || kind->as_string() != "List") return add_object(root, out);
  // As kubectl writes several objects.
  const auto items = root.find("items");
  if (!items) root.fail("the list has no items", "write items: [...]");
  for (const Yaml& item : items->items()) add_object(item, out);
}

bool is_separator(std::string_view line) {
  if (!line.starts_with("---")) return false;
  const std::string_view rest = trim(line.substr(3));
  return rest.empty() || (rest.starts_with('#') && line[3] != '#');
}

}  // namespace

std::vector<json> read_documents(const std::string& text, const std::string& file) {
  std::vector<json> out;
  std::string current;
  size_t lines_before = 0, line = 0;
  const auto finish = [&] {
    // Empty lines in front keep the numbers of lines in errors right.
    add_document(std::string(lines_before, '\n') + current, file, out);
    current.clear();
  };
  for (const std::string_view one : split(text, '\n')) {
    ++line;
    if (is_separator(one)) {
      finish();
      lines_before = line;
      continue;
    }
    current += std::string(one) + "\n";
  }
  finish();
  return out;
}

Task<Resource> find_resource(kubernetes::Client& client, std::string api_version, std::string kind) {
  const auto parts = split_once(api_version, '/');
  Resource resource;
  resource.group = parts ? std::string(parts->first) : "";
  resource.version = parts ? std::string(parts->second) : api_version;
  resource.kind = kind;
  kubernetes::Request request;
  request.path = (parts ? "/apis/" : "/api/") + api_version;
  std::string body;
  try {
    const HttpResponse answer = co_await client.read_text(std::move(request));
    body = answer.body;
  } catch (const Error& error) {
    if (error.code != ErrorCode::kNotFound) throw;
  }
  const json document = body.empty() ? json::object() : kubernetes::read_document(body, "the kinds of " + api_version);
  for (const json& one : list_in(document, "resources")) {
    const std::string name = text_in(one, "name");
    if (text_in(one, "kind") != kind || name.find('/') != std::string::npos) continue;
    resource.plural = name;
    resource.namespaced = bool_in(one, "namespaced");
    co_return resource;
  }
  const bool ours = resource.group == "rubato.dev";
  throw Error(ErrorCode::kNotFound, fmt::format("the server has no {} of {}", kind, api_version), "",
              ours ? "install the operator: rubato k8s install" : "is its CRD installed? kubectl api-resources");
}

namespace {

void collect_dropped(const json& sent, const json& kept, const std::string& where, std::vector<std::string>& out) {
  if (sent.is_object() && kept.is_object()) {
    for (const auto& [key, value] : sent.items()) {
      const std::string place = where.empty() ? key : where + "." + key;
      if (value.is_null() || place == "status" || place == "metadata") continue;
      if (kept.contains(key)) {
        collect_dropped(value, kept[key], place, out);
      } else {
        out.push_back(place);
      }
    }
  }
  if (sent.is_array() && kept.is_array() && sent.size() == kept.size()) {
    for (size_t i = 0; i < sent.size(); ++i) collect_dropped(sent[i], kept[i], fmt::format("{}[{}]", where, i), out);
  }
}

bool is_custom(const Resource& resource) {
  return resource.group.find('.') != std::string::npos && !resource.group.ends_with(".k8s.io");
}

// As kubectl refuses unknown fields: a misspelled one must not make another job than was meant.
Task<void> check_fields(kubernetes::Client& client, Resource resource, ObjectName name, json document) {
  const bool is_named = !name.name.empty();
  kubernetes::Request trial;
  trial.method = is_named ? "PATCH" : "POST";
  trial.path = path_of(resource, name);
  trial.query = {{"dryRun", "All"}, {"fieldManager", kubernetes::kFieldManager}};
  if (is_named) trial.query.emplace_back("force", "true");
  trial.content_type = is_named ? "application/apply-patch+yaml" : "application/json";
  trial.body = document.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string body;
  try {
    const HttpResponse answer = co_await client.read_text(std::move(trial));
    body = answer.body;
  } catch (const Error&) {
    // A webhook that knows no trials, say; what is wrong with the object is told when it is sent.
  }
  if (body.empty()) co_return;
  const std::vector<std::string> dropped = dropped_fields(document, kubernetes::read_document(body, "a trial"));
  if (dropped.empty()) co_return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} {}: the server knows no field {}", to_lower(resource.kind),
                          is_named ? name.name : text_in(object_in(document, "metadata"), "generateName"),
                          fmt::join(dropped, ", ")),
              "",
              resource.group == "rubato.dev" ? "see kubectl explain elasticjob.spec; a new field: rubato k8s install"
                                             : "see kubectl explain; is its CRD the newest?");
}

}  // namespace

std::vector<std::string> dropped_fields(const json& sent, const json& kept) {
  std::vector<std::string> out;
  collect_dropped(sent, kept, "", out);
  return out;
}

Task<void> submit_manifest(kubernetes::Client& client, std::vector<json> documents, std::string namespace_name,
                           Progress progress) {
  for (json& document : documents) {
    Task<Resource> finding = find_resource(client, text_in(document, "apiVersion"), text_in(document, "kind"));
    const Resource resource = co_await std::move(finding);
    const json& metadata = object_in(document, "metadata");
    ObjectName name{text_in(metadata, "namespace"), text_in(metadata, "name")};
    if (resource.namespaced && name.namespace_name.empty()) {
      name.namespace_name = namespace_name;
      document["metadata"]["namespace"] = namespace_name;
    }
    if (!resource.namespaced) name.namespace_name.clear();
    if (is_custom(resource)) {
      Task<void> checking = check_fields(client, resource, name, document);
      co_await std::move(checking);
    }
    if (name.name.empty()) {
      // generateName: the server completes it, and each time is another one.
      const json made = co_await client.create(resource, name.namespace_name, std::move(document));
      name.name = text_in(object_in(made, "metadata"), "name");
      progress(fmt::format("{} {} created", to_lower(resource.kind), to_string(name)));
      continue;
    }
    co_await client.apply(resource, name, std::move(document));
    progress(fmt::format("{} {} applied", to_lower(resource.kind), to_string(name)));
  }
}

}  // namespace rubato::elasticjob
