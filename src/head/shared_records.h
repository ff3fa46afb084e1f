// Records that several hold at once, without copies: those who watch may ask for thousands of them.
#pragma once

#include <memory>
#include <vector>

#include "cluster/event.h"

namespace rubato::head {

using SharedRecords = std::vector<std::shared_ptr<const cluster::Record>>;

}  // namespace rubato::head
