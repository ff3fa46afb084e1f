#include "clouds/kubernetes/pod_config.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "kubernetes/file_mode.h"
#include "model/cluster_file.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using rest::text_at;

// What Kubernetes writes behind numbers, in thousandths of one.
struct Suffix {
  std::string_view text;
  double milli;
};
constexpr Suffix kSuffixes[] = {{"Ki", 1024e3},
                                {"Mi", 1048576e3},
                                {"Gi", 1073741824e3},
                                {"Ti", 1099511627776e3},
                                {"m", 1},
                                {"k", 1e6},
                                {"M", 1e9},
                                {"G", 1e12},
                                {"T", 1e15},
                                {"", 1e3}};

std::string quantity_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number() ? value.dump() : "";
}

}  // namespace

json compile_pod_config(const ClusterFile& file) {
  const json options = file.provider.options;
  return {{"cluster", file.name},
          {"namespace", text_at(options, "namespace")},
          {"context", text_at(options, "context")},
          {"pending_timeout", quantity_text(options.value("pending_timeout", json()))}};
}

PodConfig pod_config_from_json(const json& told) {
  PodConfig out;
  out.cluster = text_at(told, "cluster");
  if (out.cluster.empty()) throw Error(ErrorCode::kUsage, "this is no description of a provider 'kubernetes'");
  out.namespace_name = text_at(told, "namespace");
  out.context = text_at(told, "context");
  if (const auto given = parse_duration(text_at(told, "pending_timeout"))) out.pending_timeout = *given;
  return out;
}

std::optional<int64_t> parse_quantity_milli(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  const std::string_view rest(end, text.data() + text.size() - end);
  for (const Suffix& one : kSuffixes) {
    if (rest != one.text) continue;
    const double milli = number * one.milli;
    if (milli > 9e18) return std::nullopt;
    return static_cast<int64_t>(milli);
  }
  return std::nullopt;
}

json pod_of_config(const json& node_config) {
  if (!node_config.is_object()) return json::object();
  const auto pod = node_config.find("pod");
  json out = pod != node_config.end() && pod->is_object() ? *pod : node_config;
  kubernetes::read_file_modes(out);
  return out;
}

std::optional<MachineOffer> pod_offer(const nlohmann::ordered_json& node_config) {
  const json config = pod_of_config(node_config);
  const json spec = config.value("spec", json::object());
  const json containers = spec.is_object() ? spec.value("containers", json::array()) : json::array();
  if (!containers.is_array() || containers.empty() || !containers.front().is_object()) return std::nullopt;
  const json resources = containers.front().value("resources", json::object());
  if (!resources.is_object()) return std::nullopt;
  const auto amount = [&](const char* name) -> std::optional<int64_t> {
    for (const char* kind : {"limits", "requests"}) {
      const json given = resources.value(kind, json::object());
      if (given.is_object() && given.contains(name)) return parse_quantity_milli(quantity_text(given[name]));
    }
    return std::nullopt;
  };
  MachineOffer out;
  if (const auto cpus = amount("cpu")) out.resources.set(kCpu, *cpus);
  if (const auto memory = amount("memory")) out.resources.set(kMemory, *memory / 1000);
  for (const char* gpu : {"nvidia.com/gpu", "amd.com/gpu"}) {
    if (const auto count = amount(gpu)) out.resources.set(kGpu, *count);
  }
  if (out.resources.empty()) return std::nullopt;
  return out;
}

void check_pod(const Yaml& config, Findings& findings) {
  if (!config.is_mapping()) return;
  const char* fix = "write node_config: {spec: {containers: [{image: IMAGE, resources: {limits: {cpu: 4}}}]}}";
  const auto pod = config.find("pod");
  const auto spec = pod && pod->is_mapping() ? pod->find("spec") : config.find("spec");
  const auto containers = spec && spec->is_mapping() ? spec->find("containers") : std::nullopt;
  if (!containers || !containers->is_sequence() || containers->items().empty()) {
    findings.unfilled(config, "this node_config has no containers", fix);
    return;
  }
  const Yaml first = containers->items().front();
  const auto image = first.is_mapping() ? first.find("image") : std::nullopt;
  if (!image || !image->is_scalar() || image->as_string().empty()) {
    findings.unfilled(first, "the container has no image", "add image: IMAGE; it needs sh, tar and what jobs use");
  }
}

}  // namespace rubato::clouds
