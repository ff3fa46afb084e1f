// MachineNotice: the word that this node's machine will be taken away, from whoever takes it.
#pragma once

#include <string>

#include "agent/notice.h"

namespace rubato::node {

struct MachineNotice {
  std::string what;  // "spot notice"
  agent::Notice notice;
};

}  // namespace rubato::node
