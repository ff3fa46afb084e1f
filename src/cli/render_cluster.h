// The cluster for people: pure functions of the API's documents.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/layout.h"

namespace rubato::cli {

// Of a status document.
std::string status_text(const nlohmann::json& status, const Look& look);
// Its first lines: the cluster, its head, what is used of what there is.
std::string status_heading(const nlohmann::json& status, const Look& look);

Table nodes_table(const nlohmann::json& nodes, const Look& look);

// A Node by itself.
std::string node_text(const nlohmann::json& node, const Look& look);

// "2/4 CPU, 0/1 GPU, 1 GiB/4 GiB memory"
std::string usage_text(const nlohmann::json& used, const nlohmann::json& resources);

// The changes of a PUT cluster, one line each; empty when there are none.
std::string plan_text(const nlohmann::json& plan, const Look& look);
// Whether one of them takes a node away.
bool plan_removes(const nlohmann::json& plan);

struct NodesUp {
  int64_t up = 0;
  int64_t wanted = 0;
  std::string not_up;  // "small-2 starting 3s (why)", one line for each that is not
};
NodesUp nodes_up(const nlohmann::json& status, int64_t wanted, const Look& look);

}  // namespace rubato::cli
