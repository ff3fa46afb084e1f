#include "cli/complete_command.h"

#include <set>

#include "api/cluster_documents.h"
#include "client/remote_place.h"
#include "client/session.h"
#include "os/files.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr Duration kAnswerMax = 1s;  // a person has pressed Tab
constexpr size_t kNamesMax = 500;

// Names go into a shell's list of words.
void add(std::set<std::string>& names, const std::string& name) {
  if (!name.empty() && name.find_first_of(" \t\n'\"\\$`*?[]") == std::string::npos) names.insert(name);
}

json ask(Api& api, std::string target) {
  ApiRequest request;
  request.target = std::move(target);
  request.limit = kAnswerMax;
  return api.call(request);
}

// A way to a head elsewhere is not opened for a Tab.
bool is_at_hand(const ClusterPlace& place) {
  os::RealFiles files;
  return !read_remote(files, place) || files.exists(tunnel_socket(files, place));
}

std::set<std::string> names_of(const std::string& what, const ParsedCommand& parsed, const Shell& shell) {
  std::set<std::string> names;
  if (what == "clusters") {
    for (const ClusterFound& one : list_clusters(clusters_folder(shell.env))) names.insert(one.name);
    return names;
  }
  const Session session = open_reading_session(parsed, shell);
  if (session.past ? !session.past_where.empty() : !is_at_hand(session.place)) return names;
  if (what == "jobs" || what == "subjects") {
    for (const api::JobSummary& job : read_document<api::Jobs>(ask(*session.api, "jobs?all=1")).jobs) {
      add(names, job.id);
      add(names, job.name);
    }
  }
  if ((what == "nodes" || what == "subjects") && !session.past) {
    for (const api::Node& node : read_document<api::Nodes>(ask(*session.api, "nodes")).nodes) add(names, node.id);
  }
  return names;
}

}  // namespace

int complete_command(const ParsedCommand& parsed, const Shell& shell) {
  Shell quiet = shell;
  quiet.err = [](std::string_view) {};
  std::string out;
  size_t count = 0;
  try {
    for (const std::string& name :
         names_of(parsed.positionals.empty() ? "" : parsed.positionals.front(), parsed, quiet)) {
      if (count++ < kNamesMax) out += name + "\n";
    }
  } catch (const Error&) {
    return 0;  // words about it would land in the middle of somebody's command line
  }
  shell.out(out);
  return 0;
}

}  // namespace rubato::cli
