// A scaling plan for people: tables of what is done, then the reasons. Pure.
#pragma once

#include <string>

#include "policy/scale.h"
#include "terminal/layout.h"

namespace rubato::cli {

std::string plan_text(const policy::ScalePlan& plan, const Style& look);

}  // namespace rubato::cli
