#include "cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/commands.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

// What other tools, and people, call it.
struct Synonym {
  std::string_view word;
  std::string_view command;
};
constexpr Synonym kSynonyms[] = {
    {"cancel", "stop"},
    {"kill", "stop"},
    {"scancel", "stop"},
    {"abort", "stop"},
    {"terminate", "stop"},
    {"end", "stop"},
    {"delete", "stop"},
    {"rm", "stop"},
    {"ps", "jobs"},
    {"queue", "jobs"},
    {"list", "jobs"},
    {"ls", "jobs"},
    {"squeue", "jobs"},
    {"qstat", "jobs"},
    {"sbatch", "submit"},
    {"qsub", "submit"},
    {"srun", "submit"},
    {"create", "submit"},
    {"start", "up"},
    {"init", "up"},
    {"create-cluster", "up"},
    {"apply", "up"},
    {"teardown", "down"},
    {"shutdown", "down"},
    {"destroy", "down"},
    {"quit", "down"},
    {"nodes", "status"},
    {"sinfo", "status"},
    {"info", "status"},
    {"tail", "logs"},
    {"output", "fetch"},
    {"download", "fetch"},
    {"results", "fetch"},
    {"retry", "rerun"},
    {"restart", "rerun"},
    {"resubmit", "rerun"},
    {"show", "job show"},
    {"describe", "job show"},
    {"inspect", "job show"},
    {"explain", "why"},
    {"ssh", "attach"},
    {"shell", "attach"},
    {"cp", "rsync-up"},
    {"scp", "rsync-up"},
    {"torchrun", "run"},
    {"history", "events"},
    {"check", "doctor"},
    {"validate", "config check"},
    {"watch", "top"},
    {"cost", "audit"},
    {"scale", "request"},
};

std::optional<std::string_view> synonym(std::string_view word) {
  const auto* found = std::ranges::find(kSynonyms, word, &Synonym::word);
  return found == std::end(kSynonyms) ? std::nullopt : std::optional(found->command);
}

bool is_command(std::string_view name) {
  const auto& all = all_commands();
  return std::ranges::any_of(all, [&](const Command* one) { return !one->hidden && one->name == name; });
}

// The words that may follow `group`, as in `config check`.
std::vector<std::string_view> words_of(const std::string& group) {
  std::vector<std::string_view> out;
  for (const Command* command : all_commands()) {
    if (const auto rest = strip_prefix(command->name, group + " ")) out.push_back(*rest);
  }
  return out;
}

// `job list`, `config chek`, `job` alone.
Error unknown_in_group(const std::string& group, const std::vector<std::string_view>& known, const std::string& word) {
  const std::string example = fmt::format("rubato {} {}", group, known.front());
  if (word.empty() || word.starts_with('-')) {
    return Error(ErrorCode::kUsage, fmt::format("rubato {} needs a subcommand: {}", group, join(known, ", ")), "",
                 fmt::format("write {}, or see 'rubato help {} {}'", example, group, known.front()));
  }
  const auto near = nearest(word, known);
  const auto other = synonym(word);
  std::string meant;
  if (near) {
    meant = fmt::format("rubato {} {}", group, *near);
  } else if (is_command(word)) {
    meant = fmt::format("rubato {}", word);  // `job logs`
  } else if (other) {
    meant = fmt::format("rubato {}", *other);
  }
  const std::string all = known.size() > 1 ? fmt::format("; there are: {}", join(known, ", ")) : "";
  if (!meant.empty()) {
    return Error(ErrorCode::kUsage, fmt::format("unknown command '{} {}'", group, word), "",
                 fmt::format("did you mean {}?{}", meant, all));
  }
  if (known.size() == 1) {  // `job j-1`
    return Error(ErrorCode::kUsage, fmt::format("unknown command '{} {}'", group, word), "",
                 fmt::format("write {} {}", example, word));
  }
  return Error(ErrorCode::kUsage, fmt::format("unknown command '{} {}'", group, word), "",
               fmt::format("write {}{}", example, all));
}

bool has_flag(const Command& command, std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  return std::ranges::any_of(command.flags, [&](const Flag& flag) {
    return name.starts_with("--") ? flag.name == name.substr(2) : name.size() == 2 && flag.short_name == name[1];
  });
}

}  // namespace

Error unknown_command(const std::vector<std::string>& arguments) {
  const std::string& word = arguments.front();
  const std::vector<std::string_view> grouped = words_of(word);
  if (!grouped.empty()) return unknown_in_group(word, grouped, arguments.size() > 1 ? arguments[1] : "");
  std::vector<std::string_view> names;
  for (const Command* command : all_commands()) {
    if (command->hidden) continue;
    names.push_back(command->name);
    if (const auto group = split_once(command->name, ' ')) names.push_back(group->first);
  }
  const bool flag = word.starts_with('-');
  const auto near = nearest(word, names);
  const auto other = synonym(word);
  std::string hint = "see 'rubato --help'";
  if (flag && !has_flag(run_table(), word) && std::ranges::any_of(all_commands(), [&](const Command* command) {
        return !command->hidden && has_flag(*command, word);
      })) {
    hint = "flags stand after the command: rubato COMMAND " + word;
  } else if (const auto own = nearest(word, std::vector<std::string_view>{"--help", "--version"});
             flag && own && !has_flag(run_table(), word)) {
    hint = fmt::format("did you mean rubato {}?", *own);
  } else if (flag || word.ends_with(".py")) {
    hint = fmt::format("did you mean rubato run {}? see 'rubato --help'", word);
  } else if (other) {
    hint = fmt::format("did you mean rubato {}? see 'rubato --help'", *other);
  } else if (near) {
    hint = fmt::format("did you mean rubato {}? see 'rubato --help'", *near);
  }
  return Error(ErrorCode::kUsage, fmt::format("unknown {} '{}'", flag ? "flag" : "command", word), "", hint);
}

}  // namespace rubato::cli
