#include "client/supervision.h"

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

std::string wanted_file(const std::string& dir) { return supervisor_folder(dir) + "/wanted"; }
std::string state_file(const std::string& dir) { return supervisor_folder(dir) + "/state.json"; }

}  // namespace

std::string supervisor_folder(const std::string& dir) { return dir + "/supervisor"; }

std::string read_wanted(Files& files, const std::string& dir) {
  return std::string(trim(files.read(wanted_file(dir)).value_or("")));
}

void write_wanted(Files& files, const std::string& dir, const std::string& keeper) {
  files.make_folders(supervisor_folder(dir));
  files.write_atomically(wanted_file(dir), keeper + "\n");
}

std::string accept_loss_file(const std::string& dir) { return supervisor_folder(dir) + "/accept-journal-loss"; }
std::string environment_file(const std::string& dir) { return supervisor_folder(dir) + "/environment"; }

void remove_wanted(Files& files, const std::string& dir) { files.remove_tree(wanted_file(dir)); }

os::Supervision read_supervision(Files& files, const std::string& dir) {
  const json document = json::parse(files.read(state_file(dir)).value_or(""), nullptr, false);
  os::Supervision seen;
  if (!document.is_object()) return seen;
  seen.restarts = static_cast<int>(int_in(document, "restarts"));
  seen.ends_in_a_row = static_cast<int>(int_in(document, "ends_in_a_row"));
  seen.last_end = raw_in(document, "last_end");
  return seen;
}

void write_supervision(Files& files, const std::string& dir, const os::Supervision& seen) {
  const json document = {
      {"restarts", seen.restarts}, {"ends_in_a_row", seen.ends_in_a_row}, {"last_end", seen.last_end}};
  files.write_atomically(state_file(dir), document.dump() + "\n");
}

}  // namespace rubato::cli
