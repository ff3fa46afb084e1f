// The limits on what may come in with one request, one message or one file. A collection without one of these is a bug.
//
// Requests and messages are looked at (core/json_bounds.h) before they are parsed; what is read from them is checked
// again, one by one, where it is read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/json_bounds.h"
#include "core/time.h"

namespace rubato {

// ---- Bodies of the API's requests, in bytes. More is 413. ----
inline constexpr size_t kPlainBodyMax = size_t{64} << 10;       // of requests that have next to nothing to say
inline constexpr size_t kJobBodyMax = size_t{4} << 20;          // kJobBytesMax, with escapes
inline constexpr size_t kClusterFileBodyMax = size_t{1} << 20;  // a cluster file of 10,000 hosts has some 200 KiB
inline constexpr size_t kResourcesBodyMax = size_t{1} << 20;    // kBundlesMax with a few names each
inline constexpr size_t kPackagePartBodyMax = size_t{4} << 20;  // a part of a package

// ---- Shapes of JSON. More is 400; an agent that sends more is cut off. ----
inline constexpr JsonBounds kRequestBounds{.depth_max = 32, .entries_max = 20'000, .values_max = 60'000};
// An agent's report of 4,096 jobs with 4,096 workers in all has some 100,000 values; a list of outputs has 65,536.
inline constexpr JsonBounds kMessageBounds{.depth_max = 32, .entries_max = 70'000, .values_max = 500'000};

// ---- What a person may ask for. ----
inline constexpr size_t kResourceNamesMax = 128;             // of one node, worker or bundle
inline constexpr size_t kBundlesMax = 1000;                  // of one request for resources
inline constexpr int64_t kBundleCountMax = 1'000'000;        // of equal bundles
inline constexpr size_t kJobArgumentsMax = 10'000;               // arguments of a job; as many variables
inline constexpr size_t kJobArgumentBytesMax = 128 * 1024 - 1;   // Linux's MAX_ARG_STRLEN: a longer one cannot start
inline constexpr size_t kJobBytesMax = size_t{1024} * 1024;  // of both; Linux takes 2 MiB with ours
inline constexpr int64_t kJobPriorityMax = 1000;             // and as much below zero
inline constexpr int64_t kJobRestartsMax = 1'000'000;
inline constexpr size_t kNodeTypesMax = 2000;                // of one cluster
inline constexpr size_t kFindingsMax = 500;                  // that are listed about one file
inline constexpr size_t kRequestIdBytesMax = 128;
inline constexpr Duration kLeaseMin = 10s;  // a shorter one would end what a heartbeat decides
inline constexpr size_t kQueuedJobsMax = 100'000;
inline constexpr int64_t kNodesLedMax = 20'000;  // that a file may ask for at once; what a head can lead

// ---- What an agent may say of itself. ----
inline constexpr size_t kAgentTextMax = 4096;                  // of a name or a reason
inline constexpr size_t kAddressesMax = 1024;                  // of one machine
inline constexpr size_t kAddressBytesMax = 256;                // a host name has 255
inline constexpr size_t kFailuresReportedMax = 4096;           // of one node's workers
inline constexpr size_t kFailureTextsMax = size_t{256} << 10;  // of all messages and tracebacks of one report

}  // namespace rubato
