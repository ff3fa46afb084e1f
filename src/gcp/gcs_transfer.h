// Whole files to and from Cloud Storage: checked by CRC32C, and continued where an earlier try ended.
//
// An upload is one stream of pieces; where it stands is written down in `state`, so that the next try of the same file
// to the same place sends only what is missing.
#pragma once

#include <string>

#include "gcp/gcs.h"
#include "rest/download.h"

namespace rubato::gcp {

using rest::Progress;
using rest::TransferReport;
using rest::TransferRules;

// Throws kNotFound when there is no such object, kFailed when what came is not what was put.
Task<TransferReport> download(Client& client, GcsAddress from, std::string path, TransferRules rules,
                              Progress progress);
// Throws kNotFound, kFailed for what is no plain file, or one that changes while it is read.
Task<TransferReport> upload(Client& client, std::string path, GcsAddress to, TransferRules rules, Progress progress);

// One object as another, without its bytes coming here. Throws kNotFound.
Task<TransferReport> copy(Client& client, GcsAddress from, GcsAddress to, Progress progress);

}  // namespace rubato::gcp
