// NodeOrder: what one host of a job is told. It travels as one line of JSON in user data, so it holds no secret: what
// is secret (the rendezvous key) lies in S3, and the host reads it with its role. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "petctl/script.h"

namespace rubato::petctl {

enum class HostRole { kRdzv, kWorker };
std::string_view to_string(HostRole role);  // "rdzv", "worker": as in names of groups

struct NodeOrder {
  std::string job;
  HostRole role = HostRole::kWorker;
  std::string region;
  std::string s3_endpoint;          // empty: AWS's own
  // Variables that its user data exports, and so no part of its JSON: where services are that are not AWS's own.
  std::map<std::string, std::string> endpoints;
  std::string bucket, prefix;       // of the job's objects: "petctl/ann/job"
  std::vector<std::string> groups;  // the job's, as they are torn down: the workers' last, which ends who does it
  int size = 1, min_size = 1, max_size = 1;
  std::string nproc = "1";  // --nproc-per-node
  int max_restarts = 0;
  bool keep = false;  // nothing is removed at the end
  bool gpu = false;
  std::string docker_image, efs;
  Script script;  // kS3File, kS3Tar or kOnHost
  std::vector<std::string> args;
};

std::string to_json(const NodeOrder& order);  // one line
// Throws a usage Error for what to_json() did not write.
NodeOrder parse_order(std::string_view text);

// A host's folders: bin/rubato, work/ (the script), state/ (key, events), job.log.
inline constexpr std::string_view kHome = "/root/rubato";
inline constexpr std::string_view kEfsMount = "/mnt/efs1";
inline constexpr int kRdzvPort = 29400;
inline constexpr int kJoinTimeoutSeconds = 3600;  // capacity may be waited for

// What a worker starts, in a container where an image is named; `endpoint` is where the agents meet.
std::vector<std::string> worker_argv(const NodeOrder& order, const std::string& endpoint);
// NAME=value: what torchelastic's scripts read.
std::vector<std::string> worker_variables(const NodeOrder& order, const std::string& endpoint);
std::vector<std::string> rdzv_argv(const NodeOrder& order, const std::string& endpoint);
// NFS 4.1 with the options that AWS recommends.
std::vector<std::string> efs_mount_argv(const NodeOrder& order);

// The line on a host's console by which a client without S3 learns of its end, and back.
std::string end_line(const std::string& job, const std::string& instance, int exit_code);
struct EndLine {
  std::string instance;
  int exit_code = 0;
};
std::vector<EndLine> read_end_lines(std::string_view console, std::string_view job);

}  // namespace rubato::petctl
