// JobLogs: the lines that jobs have printed, one file a job, in the order in which they came in.
//
// Agents send a line again until it is acknowledged; lines carry (agent, sequence), so that each is kept once, also
// by a head that did not see the first time. What the disk does not take is not acknowledged: it stays at the node
// until there is room. Files are read and written beside the loop, for each job one after the
// other (log_file.h has how).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/task.h"
#include "elastic/node_wire.h"
#include "head/log_file.h"
#include "head/offload.h"
#include "world/files.h"

namespace rubato::head {

// Lines that a node could not keep, because its disk was full.
struct MissingLines {
  uint64_t lines = 0;
  uint64_t bytes = 0;  // of their texts
};

using MissingByJob = std::map<JobId, std::map<int, MissingLines>>;  // and rank

class JobLogs {
 public:
  JobLogs(Loop& loop, Files& files, std::string jobs_folder, Offload offload = {});

  // Keeps the lines that are new. Returns the sequence number up to which the agent may forget them; less than the
  // last one when the disk is full, or when `follows` says that lines before these are not here.
  Task<uint64_t> append(JobId job, NodeId node, AgentId agent, std::vector<elastic::LogLine> lines,
                        uint64_t follows = 0);

  // The job has ended: nothing of it is held any more, and who reads it may stop.
  void close(const JobId& job);

  // What earlier heads have counted, of these jobs. Once, at the start.
  Task<void> remember_missing(std::vector<JobId> jobs);
  // By rank; empty for a job of which all is there.
  const std::map<int, MissingLines>& missing(const JobId& job) const;
  const MissingByJob& missing_by_job() const { return missing_; }

  size_t open_files() const { return open_.size(); }

  std::string path(const JobId& job) const;
  Event& grown() { return grown_; }

  // A place in a log, from where lines that match are read on.
  struct Cursor {
    JobId job;
    LogFilter filter;
    std::vector<LogRange> ranges;  // not read yet; the last has no end
  };
  // With `tail`: at the last so many lines that match.
  Task<Cursor> find(JobId job, LogFilter filter, std::optional<uint64_t> tail);
  // The next lines that match, each with its end. nullopt: the end of the log, as of now.
  Task<std::optional<std::string>> read(Cursor& cursor);
  // Nothing was added behind the cursor, as far as is known without asking the disk.
  bool at_end(const Cursor& cursor) const;

 private:
  // Looks through the whole log for the last line of this agent, if it is not known which one that is: a head before
  // this one may have kept lines that the agent sends again, however far back.
  Task<void> recall(JobId job, AgentId agent);

  struct OpenLog {
    std::map<AgentId, uint64_t> kept;  // the last sequence number
    uint64_t size = 0;                 // of the file
    uint64_t unread = 0;               // so much of the beginning was not looked at
    bool torn = false;                 // the file may end in the middle of a line: a head died, the disk was full
    LogBlock block;                    // what the index does not have yet
    uint64_t block_begin = 0;
    bool index_lost = false;              // the disk did not take a part of it: it is made anew
    std::map<AgentId, uint64_t> counted;  // the last line about missing ones that is in their sum
  };
  struct Writing;

  Task<std::shared_ptr<OpenLog>> open(JobId job);
  Task<std::shared_ptr<LogIndex>> index(JobId job);
  Task<void> write(JobId job, std::shared_ptr<OpenLog> log, std::shared_ptr<Writing> writing);
  void wrote(const JobId& job, OpenLog& log, Writing& writing);
  static void open_log(Files& files, const std::string& folder, OpenLog& log);

  Loop& loop_;
  Files& files_;
  std::string folder_;
  Offload offload_;
  std::map<JobId, std::shared_ptr<OpenLog>> open_;
  MissingByJob missing_;
  Event grown_;
  Chores<JobId> chores_;  // on the files of a job
};

}  // namespace rubato::head
