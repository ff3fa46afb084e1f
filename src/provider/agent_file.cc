#include "provider/agent_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato::provider {

using nlohmann::json;

bool AgentFile::operator==(const AgentFile& other) const { return to_text(*this) == to_text(other); }

std::string to_text(const AgentFile& file) {
  json j = {{"node", file.node.value},  {"head", {{"host", file.head.host}, {"port", file.head.port}}},
            {"address", file.address},  {"resources", to_json(file.resources)},
            {"ca", file.identity.ca},   {"certificate", file.identity.certificate},
            {"key", file.identity.key}, {"gpus", file.gpus}};
  if (!file.denied.empty()) j["denied"] = file.denied;
  if (!file.outputs.empty()) j["outputs"] = {{"folder", file.outputs}, {"mark", file.outputs_mark}};
  if (!file.notice.empty()) j["notice"] = to_json(file.notice);
  return j.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

AgentFile agent_file_from_text(std::string_view text) {
  try {
    const json j = json::parse(text);
    AgentFile file;
    file.node.value = j.at("node").get<std::string>();
    file.head.host = j.at("head").at("host").get<std::string>();
    const json& port = j.at("head").at("port");
    if (!port.is_number_unsigned() || port.get<uint64_t>() > 65535) {
      throw Error(ErrorCode::kFailed, "agent.json: 'port' is no port");
    }
    file.head.port = port.get<uint16_t>();
    file.address = j.at("address").get<std::string>();
    file.resources = resources_from_json(j.at("resources"));
    file.identity.ca = j.at("ca").get<std::string>();
    file.identity.certificate = j.at("certificate").get<std::string>();
    file.identity.key = j.at("key").get<std::string>();
    file.identity.use_tls = !file.identity.ca.empty();
    file.gpus = j.at("gpus").get<std::vector<std::string>>();
    if (j.contains("denied")) file.denied = j.at("denied").get<std::vector<std::string>>();
    if (j.contains("outputs")) {
      file.outputs = j.at("outputs").at("folder").get<std::string>();
      file.outputs_mark = j.at("outputs").at("mark").get<std::string>();
    }
    if (j.contains("notice")) file.notice = notice_source_from_json(j.at("notice"));
    return file;
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kFailed, fmt::format("agent.json is damaged: {}", e.what()), "",
                "`rubato up` again makes the node anew");
  }
}

}  // namespace rubato::provider
