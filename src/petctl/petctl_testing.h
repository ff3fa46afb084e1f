// For tests only: the sample specs, and a request that goes with them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "core/source_testing.h"
#include "petctl/job_plan.h"

namespace rubato::petctl {

inline std::string sample_text(const std::string& name) {
  std::ifstream file(source_path("tests/data/petctl/" + name));
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

inline Specs sample_specs() { return parse_specs(sample_text("specs.json"), "specs.json"); }

inline JobRequest sample_request() {
  JobRequest request;
  request.name = "ann-job";
  request.size = 2;
  request.min_size = 1;
  request.max_size = 4;
  request.script = {Script::Kind::kFolder, "examples/imagenet", "main.py"};
  request.args = {"--arch", "res'net", "$(reboot)", "RUBATO_ORDER"};
  request.region = "eu-west-1";
  request.binary_sha256 = std::string(64, 'b');
  request.script_sha256 = std::string(64, 'c');
  return request;
}

}  // namespace rubato::petctl
