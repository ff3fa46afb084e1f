#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"

namespace rubato::cli {
namespace {

constexpr size_t kHelpColumn = 36;
constexpr size_t kHelpWidth = 100;

// Bold for headings, cyan for what can be typed.
struct Paint {
  bool colour = false;
  std::string heading(std::string_view text) const {
    return colour ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
  }
  std::string word(std::string_view text) const {
    return colour ? fmt::format("\x1b[36m{}\x1b[0m", text) : std::string(text);
  }
};

std::string flag_text(const Flag& flag) {
  std::string out = flag.short_name != 0 ? fmt::format("-{}, ", flag.short_name) : "    ";
  out += fmt::format("--{}", flag.name);
  if (!flag.value.empty()) out += fmt::format(" {}", flag.value);
  return out;
}

// `left` in its column, then `text` wrapped beside it.
std::string two_columns(std::string_view left, std::string text, size_t column, const Paint& paint) {
  std::string out = "  " + paint.word(left);
  size_t at = 2 + left.size();
  if (at + 2 > column) {
    out += "\n";
    at = 0;
  }
  out.append(column - at, ' ');
  while (column + text.size() > kHelpWidth) {
    const size_t cut = text.rfind(' ', kHelpWidth - column);
    if (cut == std::string::npos || cut == 0) break;
    out += text.substr(0, cut) + "\n" + std::string(column, ' ');
    text.erase(0, cut + 1);
  }
  return out + text + "\n";
}

std::string flags_help(const Command& command, const Paint& paint) {
  std::string out, group = "\n";
  for (const Flag& flag : command.flags) {
    if (flag.hidden) continue;
    if (flag.group != group) {
      group = flag.group;
      out += "\n" + paint.heading(group.empty() ? "Flags" : group) + "\n";
    }
    std::string text(flag.help);
    if (!flag.default_text.empty()) text += fmt::format(" [{}]", flag.default_text);
    out += two_columns(flag_text(flag), text, kHelpColumn, paint);
  }
  return out;
}

std::string examples_help(const Command& command, const Paint& paint) {
  if (command.examples.empty()) return "";
  std::string out = "\n" + paint.heading("Examples") + "\n";
  for (const auto& [what, line] : command.examples) out += fmt::format("  # {}\n  {}\n", what, paint.word(line));
  return out;
}

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string flags_markdown(const Command& command) {
  std::string out, group = "\n";
  for (const Flag& flag : command.flags) {
    if (flag.hidden) continue;
    if (flag.group != group) {
      group = flag.group;
      if (!group.empty()) out += fmt::format("\n### {}\n", group);
      out += "\n| flag | meaning | default | variable |\n|---|---|---|---|\n";
    }
    std::string shown = flag_text(flag);
    shown.erase(0, shown.find_first_not_of(' '));
    out += fmt::format("| `{}` | {} | {} | {} |\n", markdown_cell(shown), markdown_cell(flag.help),
                       markdown_cell(flag.default_text), flag.env.empty() ? "" : fmt::format("`{}`", flag.env));
  }
  return out;
}

}  // namespace

std::string overall_help(bool colour) {
  const Paint paint{colour};
  std::string out = "rubato: elastic training on your machines, in one binary\n\n";
  out += paint.heading("Usage") + "\n  rubato COMMAND [flags]\n\n" + paint.heading("Commands") + "\n";
  for (const Command* command : all_commands()) {
    if (!command->hidden) out += two_columns(command->name, std::string(command->summary), 14, paint);
  }
  out += "\n" + paint.heading("Examples") + "\n";
  for (const char* line : {"rubato up", "rubato submit --workers 2 --follow train.py",
                           "rubato run --standalone --nproc-per-node 2 train.py", "rubato help submit"}) {
    out += "  " + paint.word(line) + "\n";
  }
  return out;
}

std::string group_help(const std::string& group, bool colour) {
  const Paint paint{colour};
  std::string commands;
  for (const Command* command : all_commands()) {
    if (command->name.starts_with(group + " "))
      commands += two_columns(command->name, std::string(command->summary), 18, paint);
  }
  if (commands.empty()) return "";
  return fmt::format("{}\n  rubato {} COMMAND [flags]\n\n{}\n{}\n{}", paint.heading("Usage"), group,
                     paint.heading("Commands"), commands,
                     paint.word(fmt::format("rubato help {} COMMAND", group)) + " explains one.\n");
}

std::string command_help(const Command& command, bool colour) {
  const Paint paint{colour};
  std::string out = fmt::format("{}\n\n{}\n  {}\n", command.summary, paint.heading("Usage"), command.usage);
  if (!command.about.empty()) out += fmt::format("\n{}\n", command.about);
  return out + examples_help(command, paint) + flags_help(command, paint);
}

std::string reference_markdown() {
  std::string out =
      "# Commands\n\nMade by `rubato docs > docs/cli.md`; change the tables in `src/cli`, not this file.\n";
  for (const Command* command : all_commands()) {
    if (command->hidden) continue;
    out += fmt::format("\n## rubato {}\n\n{}.\n\n```text\n{}\n```\n", command->name, command->summary, command->usage);
    if (!command->about.empty()) out += fmt::format("\n{}\n", command->about);
    if (!command->examples.empty()) {
      out += "\n```sh example\n";
      for (const auto& [what, line] : command->examples) out += fmt::format("# {}\n{}\n", what, line);
      out += "```\n";
    }
    out += flags_markdown(*command);
  }
  return out;
}

}  // namespace rubato::cli
