// A scaling plan for people: tables of what is done, then the reasons. Pure.
#pragma once

#include <string>

#include "cli/layout.h"
#include "policy/scale.h"

namespace rubato::cli {

std::string plan_text(const policy::ScalePlan& plan, const Look& look);

}  // namespace rubato::cli
