// `rubato doctor`: judges the facts of a machine, and says how to fix what is not right. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "os/probe.h"

namespace rubato::cli {

enum class Health {
  kOk,
  kWarn,  // some jobs will suffer
  kFail,  // training here, or with the endpoint, cannot work
};
std::string_view to_string(Health health);

struct Finding {
  std::string check;
  Health health = Health::kOk;
  std::string found;
  std::string fix;  // empty when ok
};

std::vector<Finding> judge(const os::ProbeFacts& facts);

// Exit code 1 when something failed.
int doctor_exit_code(const std::vector<Finding>& findings);

std::string findings_table(const std::vector<Finding>& findings, bool colour);
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace rubato::cli
