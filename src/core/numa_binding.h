// To which processors a worker is bound, of those near the GPU whose index is its local rank.
#pragma once

namespace rubato {

enum class NumaBinding {
  kNode,         // all of the GPU's NUMA node
  kSocket,       // all of its socket
  kExclusive,    // a part of its node that no other GPU's worker has
  kCoreComplex,  // those of its node that share a last-level cache
};

}  // namespace rubato
