// JobLogs: the lines that jobs have printed, one file a job, in the order in which they came in.
//
// Agents send a line again until it is acknowledged; lines carry (agent, sequence), so that each is kept once, also
// by a head that did not see the first time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/task.h"
#include "elastic/node_wire.h"
#include "world/files.h"

namespace rubato::head {

class JobLogs {
 public:
  JobLogs(Loop& loop, Files& files, std::string jobs_folder);

  // Keeps the lines that are new. Returns the sequence number up to which the agent may forget them. Lines that the
  // disk does not take are lost, and the log says so as soon as it takes one: a node is worth more than its lines.
  uint64_t append(const JobId& job, const NodeId& node, const AgentId& agent,
                  const std::vector<elastic::LogLine>& lines);

  // Looks through the whole log for the last line of this agent, if it is not known which one that is: a dead agent
  // may have left lines that a head before this one has kept, long ago. Before append() for such an agent.
  Task<void> recall(JobId job, AgentId agent);

  // The job has ended: nothing of it is held any more, and who reads it may stop.
  void close(const JobId& job) {
    open_.erase(job);
    grown_.notify();
  }

  size_t open_files() const { return open_.size(); }

  std::string path(const JobId& job) const;
  Event& grown() { return grown_; }

  // The next whole lines from `offset` on, which moves behind them; empty at the end of the file.
  std::vector<std::string> read(const JobId& job, uint64_t& offset) const;

 private:
  struct OpenLog {
    std::map<AgentId, uint64_t> kept;  // the last sequence number
    uint64_t lost = 0;                 // lines that the disk did not take since the last one that it took
    uint64_t unread = 0;               // so much of the beginning was not looked at
    bool torn = false;                 // the file may end in the middle of a line: a head died, the disk was full
  };
  OpenLog& open(const JobId& job);

  Loop& loop_;
  Files& files_;
  std::string folder_;
  std::map<JobId, OpenLog> open_;
  Event grown_;
};

}  // namespace rubato::head
