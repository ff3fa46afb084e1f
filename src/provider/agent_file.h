// agent.json: what the agent in a node's folder is told at its start. Written by the provider, read by `rubato agent`.
#pragma once

#include <string>
#include <vector>

#include "model/ids.h"
#include "model/notice_source.h"
#include "model/resources.h"
#include "world/network.h"

namespace rubato::provider {

struct AgentFile {
  NodeId node;
  Endpoint head;
  std::string address;  // of the node
  Resources resources;              // empty: all that the machine has, less what is denied
  std::vector<std::string> denied;
  TlsFiles identity;              // paths of the CA, and of the node's certificate and key
  std::vector<std::string> gpus;  // names for CUDA_VISIBLE_DEVICES; empty: the node has none
  // The head's folder of jobs' outputs, and what its file kOutputsMark says. An agent that finds that there writes
  // there; another one has a disk of its own. Empty: the folder is there for sure.
  std::string outputs, outputs_mark;
  NoticeSource notice;
  bool operator==(const AgentFile& other) const;
};

std::string to_text(const AgentFile& file);
// Throws kFailed when it is none.
AgentFile agent_file_from_text(std::string_view text);

inline constexpr const char* kAgentFileName = "agent.json";
inline constexpr const char* kOutputsMark = ".mark";

}  // namespace rubato::provider
