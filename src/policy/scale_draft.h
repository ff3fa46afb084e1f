// Drafts: a whole plan in numbers, made in one style. The best of some becomes the plan.
#pragma once

#include <vector>

#include "policy/scale_gang.h"
#include "policy/scale_pack.h"
#include "policy/scale_work.h"

namespace rubato::policy {

// The cells of a stock: so many keep a hundred thousand shapes within 2 % of the linear program's bound.
inline constexpr size_t kStockCells = 600;

// What is asked, in numbers; the same for all drafts.
struct ScaleProblem {
  explicit ScaleProblem(const ScaleInput& input);

  const ScaleInput& input;
  Dimensions dimensions;
  Supply supply;                // as it is before the plan
  Rooms rooms;                  // by type
  std::vector<PackNode> nodes;  // those that may take work; in use first, in the order in which they are filled
  std::vector<double> aside;    // by dimension: the most that is free on a node that is not among these
  std::vector<char> over;       // by node of the input: it is idle, and too many by the file's limits
  Work work;                    // demands, and gangs that need no care when there is room for all
  Work demands;                 // without any gang
  Work requests;
};

struct DraftStyle {
  PackStyle pack;
  bool requests_first = true;
  bool heed_wishes = false;  // of PACK and SPREAD gangs: they are seated one by one, before the demands
  bool refine = false;       // nodes are dropped and exchanged until nothing gets cheaper
  bool first_fit = false;    // as Ray does it
};

struct Draft {
  explicit Draft(const ScaleProblem& problem);

  Packing packing;
  bool gangs_apart = false;           // gangs were seated one after the other, `packing.stock` is of demands only
  std::vector<GangFailure> failures;  // of gangs
  std::vector<char> requested;        // by node of the packing: a request needs it
  std::vector<int64_t> request_left;  // by shape of the requests
  std::vector<Binding> min_failures;  // min_workers that cannot be had
  int64_t left_bundles = 0;           // that are unfulfilled
  double left = 0;                    // dollars that the unfulfilled is worth; only to compare drafts
  double cost = 0;                    // of what is opened
  DraftStyle style;

  const Work& work(const ScaleProblem& problem) const { return gangs_apart ? problem.demands : problem.work; }
};

// Sets what drafts are compared by.
void weigh_draft(const ScaleProblem& problem, Draft& draft);

// The best of several drafts, and one that asks for nothing more when its nodes are coming.
Draft best_draft(const ScaleProblem& problem);

// How many workers the file wants at least of this type: min_workers, or what the use of a legacy cluster calls for.
int least_workers(const ScaleInput& input, const std::string& type);

}  // namespace rubato::policy
