// Whole files to and from S3: several parts at a time, checked, and continued where an earlier try ended.
//
// Memory: a few parts, whatever the size of the file. A download goes to FILE.rubato-part and gets its name when it is
// whole and right; FILE.rubato-part.json says of which object it is. An upload in parts is written down in `state`, so
// that the next try of the same file to the same place sends only what is missing; S3 keeps (and charges for) the parts
// until then.
#pragma once

#include <string>

#include "aws/s3.h"
#include "rest/download.h"

namespace rubato::aws {

using rest::Progress;
using rest::TransferReport;
using rest::TransferRules;  // part_size grows for files of more than 10,000 such parts

// Throws kNotFound when there is no such object, kFailed when what came is not what was put.
Task<TransferReport> download(Client& client, S3Address from, std::string path, TransferRules rules, Progress progress);

// Throws kNotFound, kFailed for what is no plain file, or one that changes while it is read.
Task<TransferReport> upload(Client& client, std::string path, S3Address to, TransferRules rules, Progress progress);

// One object as another, without its bytes coming here; larger ones in parts. Throws kNotFound, and kConflict where the
// object is replaced meanwhile. What was begun and failed is given up.
struct CopyRules {
  uint64_t whole_max = kCopyMax;
  uint64_t part_size = uint64_t{1} << 30;
};
Task<TransferReport> copy(Client& client, S3Address from, S3Address to, Progress progress, CopyRules rules = {});

// Size of the parts of an upload of so many bytes, and how many at a time keep within the memory. Pure.
struct PartPlan {
  uint64_t size = 0;
  int count = 0;
  int parallel = 0;
};
inline constexpr int kPartsMax = 10'000;                    // S3's
inline constexpr uint64_t kPartSizeMax = uint64_t{32} << 20;  // two of it must fit into our memory
// Throws a usage Error for more than kPartsMax parts of kPartSizeMax (312 GiB).
PartPlan plan_parts(uint64_t size, const TransferRules& rules);

}  // namespace rubato::aws
