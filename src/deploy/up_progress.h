// UpProgress: how nodes come up, from the API's documents: what to print of each look, and when to stop waiting. Pure.
//
//   reachable -> files -> initialization -> setup -> agent -> joined
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/cluster_documents.h"
#include "terminal/layout.h"

namespace rubato::cli {

class UpProgress {
 public:
  // Between a machine that could not be had and the next try, the head decides anew.
  static constexpr Duration kElsewhereMax = 5s;

  explicit UpProgress(int64_t wanted) : wanted_(wanted) {}

  // The newest status, and the events since the one before. Returns lines that stay: steps, if `steps`, failures.
  std::string take(const api::Status& status, const std::vector<api::Event>& events, bool steps, const Style& look);

  // The nodes that are not up, a line each, for a screen that is written over.
  std::vector<std::string> live(const api::Status& status, const Style& look) const;

  bool done() const { return up_ >= wanted_ && pending_ == 0; }
  // Each node that is wanted is up or has failed: waiting longer is the head's business. Where a cloud has none of a
  // kind, the head looks elsewhere: that is waited for, until it has asked for nothing for a while.
  bool given_up() const {
    return !failures_.empty() && up_ + static_cast<int64_t>(failures_.size()) >= wanted_ &&
           (scarce_.empty() || quiet_ >= kElsewhereMax);
  }
  int64_t up() const { return up_; }
  // "worker-2: setup: ..." with the last lines of its commands, for each that failed.
  std::string failures() const;
  // One of them, for a command that we suggest.
  std::string failed_node() const { return failures_.empty() ? "" : failures_.begin()->first; }

 private:
  const int64_t wanted_;
  int64_t up_ = 0;
  int64_t pending_ = 0;
  std::optional<WallTime> quiet_since_;  // nothing is on its way
  Duration quiet_ = 0s;
  bool begun_ = false;
  std::set<std::string> begun_before_;           // with another file, perhaps: their failure is not this one's
  std::map<std::string, std::string> steps_;     // by node: the last one that was printed
  std::map<std::string, std::string> failures_;  // by node
  std::set<std::string> scarce_;                 // those of them for which there was no machine
};

}  // namespace rubato::cli
