// JobPlan: specs and flags to what is made in AWS: groups, their names and tags, launch templates, places in S3. Pure.
//
//   petctl      JOB_rdzv (one host, which only hosts the rendezvous) and JOB_worker
//   native      JOB_worker alone: the first of its hosts hosts the rendezvous too
//
//   s3://BUCKET/PREFIX/bin/SHA256/rubato           our binary, once for all jobs
//   s3://BUCKET/PREFIX/JOB/script.py, dir.tar.zst  what is run
//   s3://BUCKET/PREFIX/JOB/rubato/…                key, rendezvous, status, logs (job_store.h)
//
// Names follow from the job's name, and a template's from its contents too: a command that was killed finds what it had
// made when it is repeated, and another job of the same name is told from it by the tag rubato-job-plan.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "petctl/node_order.h"
#include "petctl/specs.h"

namespace rubato::petctl {

inline constexpr std::string_view kJobTag = "rubato-job";
inline constexpr std::string_view kPlanTag = "rubato-job-plan";    // digest of the plan
inline constexpr std::string_view kPlaceTag = "rubato-job-place";  // s3://BUCKET/PREFIX/JOB
inline constexpr std::string_view kKeepTag = "rubato-job-keep";    // there: nothing is removed at the job's end

inline constexpr std::string_view kJobNameRule =
    "use up to 48 letters, digits, '-', '_' and '.'; a letter or digit first";
bool is_job_name(std::string_view name);

struct JobRequest {
  std::string name;
  int size = 0;
  int min_size = 0, max_size = 0;  // 0: as size
  bool rdzv_group = true;          // petctl's form
  bool keep = false;
  std::string nproc;  // empty: each GPU, else 1
  int max_restarts = 3;
  Script script;
  std::vector<std::string> args;
  std::string region, s3_endpoint;
  std::map<std::string, std::string> endpoints;  // as NodeOrder has them
  std::string binary_sha256;
  std::string script_sha256;  // of what is uploaded; empty: nothing is
};

struct GroupPlan {
  std::string name;  // of the Auto Scaling group
  HostRole role = HostRole::kWorker;
  int size = 0, min_size = 0, max_size = 0;
  HostSpecs specs;
  bool docker = false;  // its hosts run containers
  std::string user_data;
  std::string template_name;
};

struct JobPlan {
  std::string name;
  std::string bucket, prefix;  // "petctl/ann/job"
  std::string binary_key;
  std::string script_key;  // empty: nothing is uploaded
  std::string digest;
  bool keep = false;
  std::vector<GroupPlan> groups;  // rendezvous first: the others need it
  std::string place() const;      // s3://BUCKET/PREFIX
};

// Throws a usage Error for a name or sizes that cannot be.
JobPlan make_plan(const JobRequest& request, const Specs& specs);

using TagList = std::vector<std::pair<std::string, std::string>>;
TagList job_tags(const JobPlan& plan);                            // of everything
TagList group_tags(const JobPlan& plan, const GroupPlan& group);  // and the name that consoles show

// What was looked up for a group's launch template.
struct Found {
  std::string image, root_device;
  std::vector<std::string> security_groups;  // ids
  std::string profile;                       // name or ARN
};
// As RunInstances takes it.
nlohmann::json launch_config(const GroupPlan& group, const Found& found, const TagList& tags);

// The public SSM parameter that names the image for hosts like these.
std::string image_parameter(const HostSpecs& specs, bool docker);

// The IAM statements that a role needs for what the seed's read-only role cannot do: status and logs in S3, and the
// teardown by the job itself. JSON, indented.
std::string wanted_statements(const JobPlan& plan, const std::string& partition);
// The whole policy of a role that we make: these, and reading.
std::string role_policy(const JobPlan& plan, const std::string& partition);

std::string role_name(const std::string& job, const std::string& region);
std::string group_name(const std::string& job, HostRole role);
std::string security_group_name(const std::string& job);

}  // namespace rubato::petctl
