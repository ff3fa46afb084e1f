// What a cluster in a cloud begins with, and where it can be had at what price: shown before anything is made. Pure.
#pragma once

#include <string>
#include <vector>

#include "model/cluster_file.h"
#include "model/cluster_spec.h"
#include "provider/cloud_survey.h"

namespace rubato::cli {

// One way to get the nodes of a type that `up` asks for at once.
struct Candidate {
  std::string node_type;
  int count = 1;
  std::string where;     // "aws/eu-west-1a"
  std::string instance;  // the cloud's name of the machine; empty: the file does not name one
  std::string gpu;       // "V100"; empty: none
  Market market = Market::kOnDemand;
  double price_per_hour = 0;  // of one; 0: not known
  bool is_chosen = false;     // the first to be tried
};

using LivePrices = std::vector<provider::LivePrice>;

// The head's machine first, then the types that have nodes from the start. `live`: what spot machines cost now; others
// cost what the file or the tables say.
std::vector<Candidate> candidates_of(const ClusterFile& file, const LivePrices& live = {});

// The plan as a person reads it: a table, and what the chosen ones cost together.
std::string candidates_text(const ClusterFile& file, const LivePrices& live = {});

}  // namespace rubato::cli
