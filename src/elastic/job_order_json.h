// Job orders and reports as JSON, and the pieces that other messages of node_wire.h have too.
#pragma once

#include <nlohmann/json.hpp>

#include "elastic/node_wire.h"

namespace rubato::elastic::wire {

using nlohmann::json;

inline constexpr size_t kNameMax = 256;  // of ids, versions and roles

// All readers throw for what no program of ours writes.
std::string short_text(const json& object, const char* key);
std::string id_text(const json& object, const char* key);    // it becomes the name of a folder: it leads nowhere else
std::string hash_text(const json& object, const char* key);  // SHA-256
Duration span(const json& object, const char* key);          // never negative
json agents_json(const std::vector<AgentId>& agents);
std::vector<AgentId> read_agents(const json& j, const char* key);
json rounds_json(const std::vector<RoundId>& rounds);
std::vector<RoundId> read_rounds(const json& j);
json job_order_json(const JobOrder& e);
JobOrder read_job_order(const json& j);
json reports_json(const std::vector<JobOrderReport>& reports, Instant now);
std::vector<JobOrderReport> read_reports(const json& j, Instant now);

}  // namespace rubato::elastic::wire
