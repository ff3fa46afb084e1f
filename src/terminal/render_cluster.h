// The cluster for people: pure functions of the API's documents.
#pragma once

#include <string>
#include <vector>

#include "api/cluster_documents.h"
#include "terminal/layout.h"

namespace rubato::cli {

std::string status_text(const api::Status& status, const Style& look);
// Its first lines: the cluster, its head, what is used of what there is.
std::string status_heading(const api::Status& status, const Style& look);

Table nodes_table(const std::vector<api::Node>& nodes, const Style& look);

std::string node_text(const api::Node& node, const Style& look);

// "2/4 CPU, 0/1 GPU, 1 GiB/4 GiB memory"
std::string usage_text(const Resources& used, const Resources& all);

// One line each; empty when there are none.
std::string plan_text(const std::vector<api::PlannedChange>& changes, const Style& look);
// Whether one of them takes a node away.
bool plan_removes(const std::vector<api::PlannedChange>& changes);

struct NodesUp {
  int64_t up = 0;
  int64_t wanted = 0;
  std::string not_up;  // "small-2 starting 3s (why)", one line for each that is not
};
NodesUp nodes_up(const api::Status& status, int64_t wanted, const Style& look);

}  // namespace rubato::cli
