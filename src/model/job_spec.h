// JobSpec: what a person asked of `rubato submit`. Plain values; it never changes after the submission.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/time.h"
#include "model/launch_spec.h"
#include "model/resources.h"

namespace rubato {

struct JobSpec {
  std::string name;  // [a-z0-9][a-z0-9._-]{0,62}; not unique
  ProgramKind kind = ProgramKind::kScript;
  std::string program;  // relative to the working directory, or a module, or a program in PATH
  std::vector<std::string> args;
  std::string python;  // empty: the node's
  std::vector<std::string> prewarm;
  std::map<std::string, std::string> env;
  std::string package;  // sha256 of the packed working directory, hex; empty: none, workers start in an empty folder

  int workers_min = 1;
  int workers_max = 1;
  int workers_step = 1;  // it runs on multiples only; both bounds are such
  Resources per_worker;  // one CPU when nothing was asked for

  int priority = 0;  // higher first; -1000..1000
  double weight = 1;       // of an adaptive job, among others of its priority: docs/adaptive.md
  Duration deadline = 0s;  // an adaptive job is to end so long after its submission; 0: whenever it does
  std::string owner;
  int max_restarts = 3;
  Duration timeout = 0s;               // of the whole job from its first start; 0: none
  Duration grace = 30s;                // between SIGTERM and SIGKILL when it is stopped
  Duration checkpoint_timeout = 120s;  // between SIGTERM and SIGKILL when it is rescaled
  Duration rescale_timeout = 60s;      // how long a new round waits for nodes that do not answer
  Duration lease = 0s;                 // how long it may train without its head; 0: the cluster's

  // The most of so many that it can use.
  int usable(int workers) const { return workers - workers % workers_step; }
  bool operator==(const JobSpec&) const = default;
};

nlohmann::json to_json(const JobSpec& spec);
// Checks everything a head must not take on trust: names, ranges, env names, paths. Throws a usage Error that names
// the field; unknown fields are errors.
JobSpec job_spec_from_json(const nlohmann::json& json);

bool valid_job_name(std::string_view name);
bool valid_env_name(std::string_view name);

}  // namespace rubato
