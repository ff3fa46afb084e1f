// JobStore: a job's objects in S3, below s3://BUCKET/PREFIX/JOB/rubato/: what its hosts and its people know of it.
//
//   job.json            what was uploaded for it, so that the end removes that and nothing else
//   key                 the secret of its rendezvous; made once
//   rdzv.json           where its agents meet: written by the client first, then by who hosts
//   status/INSTANCE.json, logs/INSTANCE.log       of each host, by itself
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aws/s3.h"

namespace rubato::petctl {

struct RdzvRecord {
  std::string instance, endpoint;  // "10.0.0.7:29400"
  uint64_t epoch = 0;              // of the group's host; each host that takes over has a higher one
};

struct HostReport {
  enum class State { kStarting, kRunning, kSucceeded, kFailed };
  std::string instance, address, role;
  State state = State::kStarting;
  int exit_code = 0;
  std::string note;   // why it failed, for people
  std::string since;  // RFC 3339
  bool ended() const { return state == State::kSucceeded || state == State::kFailed; }
};
std::string_view to_string(HostReport::State state);

// Reports that were read already, by their keys and what S3's list calls their contents.
struct KnownReport {
  std::string etag;
  HostReport report;
};
using KnownReports = std::map<std::string, KnownReport>;

class JobStore {
 public:
  JobStore(aws::Client& client, std::string bucket, std::string prefix)
      : client_(client), bucket_(std::move(bucket)), prefix_(std::move(prefix)) {}
  // s3://BUCKET/PREFIX/JOB, as tags have it.
  JobStore(aws::Client& client, const std::string& place);

  std::string place() const;
  aws::S3Address address(const std::string& name) const;  // "rubato/NAME"

  // nullopt: not there (yet).
  Task<std::optional<std::string>> read(std::string name);
  Task<void> write(std::string name, std::string bytes);

  Task<std::string> ensure_key(std::string fresh);  // the one that is there, else this one
  Task<std::optional<RdzvRecord>> rdzv();
  Task<void> write_rdzv(RdzvRecord record);
  // A list, and a read of each that is not in `known` as it is now.
  Task<std::vector<HostReport>> reports(KnownReports& known);
  Task<void> write_report(HostReport report);
  Task<std::vector<aws::S3Object>> logs();  // keys are whole

  // The key of the script that was uploaded; empty: none was.
  Task<void> write_uploaded(std::string key);

  // What is of no use after the job's end: script, key, rendezvous; `all`: the status of its hosts too. Logs stay.
  Task<void> remove(bool all);

 private:
  aws::Client& client_;
  std::string bucket_, prefix_;
};

// All of an object's bytes, at most `size_max`; nullopt: there is none.
Task<std::optional<std::string>> read_object(aws::Client& client, aws::S3Address address, uint64_t size_max);
Task<void> write_object(aws::Client& client, aws::S3Address address, std::string bytes);

}  // namespace rubato::petctl
