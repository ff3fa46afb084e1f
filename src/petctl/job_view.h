// JobView: what there is of a job now, by what the cloud and its hosts say.
//
//   absent ──▶ starting ──▶ running ──▶ succeeded | failed ──▶ (teardown) absent
//
// Hosts report to S3 where their role may write there. Else EC2 tells that they are there, and the last lines of their
// consoles how they ended.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aws/auto_scaling.h"
#include "aws/ec2.h"
#include "petctl/cloud_calls.h"
#include "petctl/job_plan.h"
#include "petctl/job_store.h"

namespace rubato::petctl {

enum class JobPhase { kAbsent, kStarting, kRunning, kSucceeded, kFailed };
std::string_view to_string(JobPhase phase);

struct HostView {
  std::string instance, state, lifecycle, zone, address, public_name, launched;
  HostRole role = HostRole::kWorker;
};

struct JobView {
  std::string name;
  std::string place;  // s3://…; empty: nobody knows
  std::string plan;   // digest
  bool keep = false;
  bool ending = false;                    // its groups are being deleted
  std::vector<aws::ScalingGroup> groups;  // those of ours
  std::vector<HostView> hosts;
  std::vector<HostReport> reports;
  std::string reports_from;  // "S3", "the console"; empty: there is none
};

// Pure.
JobPhase phase_of(const JobView& view);
const HostReport* report_of(const JobView& view, const std::string& instance);
// The host where the agents of a job meet first: its rendezvous host, else its oldest worker; null while none has an
// address.
const HostView* first_host(const JobView& view);

struct JobQuery {
  std::string name;
  std::string place;     // where nothing in EC2 says it: of the specs file, or of what this machine remembers
  bool consoles = true;  // read them where S3 has no reports
  KnownReports* known = nullptr;  // of earlier calls; outlives this one
};
// Groups of that name that are not ours are no part of it.
Task<JobView> read_job(aws::Client& client, JobQuery query);

std::string tag_in(const aws::Tags& tags, std::string_view key);  // empty: none

}  // namespace rubato::petctl
